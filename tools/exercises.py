"""Write the sources of the exercise notebooks from the bank: exercises/bank -> exercises/src.

python -m tools.exercises            write them; then `make notebooks` executes what changed
python -m tools.exercises --check    say which files do not belong to the bank (writes nothing)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scaling_lib.sheets import sources

SOURCES = Path(__file__).resolve().parent.parent / "exercises" / "src"


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description="Write exercises/src from exercises/bank.")
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = sources()
    present = {p.relative_to(SOURCES).as_posix() for p in SOURCES.rglob("*.md")}
    stray = sorted(present - set(wanted))
    changed = [
        name
        for name, text in wanted.items()
        if name not in present or (SOURCES / name).read_text(encoding="utf-8") != text
    ]
    if check:
        for name in [*changed, *stray]:
            print(f"exercises/src/{name} does not belong to the bank: run python -m tools.exercises")
        return 1 if changed or stray else 0
    for name in changed:
        target = SOURCES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (SOURCES.parent / name).parent.mkdir(exist_ok=True)  # where its notebook will stand
        target.write_text(wanted[name], encoding="utf-8")
    for name in stray:
        (SOURCES / name).unlink()
    print(f"{len(changed)} sources written, {len(stray)} removed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
