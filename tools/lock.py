"""Derive constraints.txt and environment.yml from pyproject.toml: one set of versions for every supported Python.

Without options the pins that still fit are kept and what is new is added; --upgrade takes the newest that fit.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS, CONDA = ROOT / "constraints.txt", ROOT / "environment.yml"
HEADER = "# Made by `make lock` from pyproject.toml; do not edit. One version of each package for every Python.\n"
CONDA_HEADER = """\
# Made by `make lock`; do not edit. The same versions as constraints.txt, for conda, mamba and Binder:
#   conda env create -f environment.yml && conda activate scaling-course
name: scaling-course
channels: [conda-forge]
dependencies:
  - python={python}
  - pip
  - pip:
"""
CONDA_PYTHON = "3.12"


def resolve(upgrade: bool) -> None:
    """Let uv choose the versions and write them with the hashes of all their files."""
    # "fewest": outputs stored in notebooks must be the same under every Python, so it is one version for all.
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--all-extras", "--universal"]
    command += ["--fork-strategy", "fewest", "--generate-hashes", "--no-header", "--quiet", "-o", PINS.name]
    subprocess.run([*command, *(["--upgrade"] if upgrade else [])], cwd=ROOT, check=True)
    PINS.write_text(HEADER + PINS.read_text(encoding="utf-8").removeprefix(HEADER), encoding="utf-8")


def pins(text: str) -> dict[str, str]:
    """Return the requirement of each pinned package, with its marker and without its hashes."""
    lines = re.findall(r"(?m)^([A-Za-z0-9_.-]+)(==[^\\\n]*?)\s*\\?$", text)
    return {name: name + rest for name, rest in lines}


def conda(text: str) -> str:
    """Return the environment.yml that belongs to a constraints.txt."""
    entries = [f'      - "{pin}"\n' if ";" in pin else f"      - {pin}\n" for pin in pins(text).values()]
    return CONDA_HEADER.format(python=CONDA_PYTHON) + "".join(entries) + "      - -e .\n"


def main() -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description="Renew constraints.txt and environment.yml.")
    parser.add_argument("--upgrade", action="store_true", help="take newer versions where the ranges allow it")
    try:
        resolve(parser.parse_args().upgrade)
    except subprocess.CalledProcessError:
        print("No versions fit pyproject.toml, or the package index was not reached (see above).", file=sys.stderr)
        return 1
    text = PINS.read_text(encoding="utf-8")
    CONDA.write_text(conda(text), encoding="utf-8")
    print(f"{len(pins(text))} packages pinned in {PINS.name} and {CONDA.name}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
