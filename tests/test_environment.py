"""The faces of the environment agree, and the command that makes it survives what befalls it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import environment, lock

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def pinned() -> dict[str, Requirement]:
    return {canonicalize_name(name): Requirement(text) for name, text in lock.pins(PINS).items()}


def version(requirement: Requirement) -> Version:
    (specifier,) = requirement.specifier
    assert specifier.operator == "=="
    return Version(specifier.version)


def wanted() -> list[Requirement]:
    groups = PROJECT["project"]["optional-dependencies"]
    return [Requirement(text) for group in groups.values() for text in group]


# one set of versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", wanted(), ids=lambda r: r.name)
def test_every_requirement_is_pinned_inside_its_range(requirement: Requirement) -> None:
    pin = pinned().get(canonicalize_name(requirement.name))
    assert pin is not None, f"{requirement.name} is not in constraints.txt: make lock"
    assert version(pin) in requirement.specifier, f"{pin} does not fit {requirement}: make lock"


def test_the_build_tool_is_the_pinned_one() -> None:
    """scaling_lib is installed without build isolation, so its build requirements must be among the pins."""
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert version(pinned()[canonicalize_name(requirement.name)]) in requirement.specifier


def test_the_core_requires_nothing() -> None:
    assert PROJECT["project"]["dependencies"] == []


def test_every_pin_has_hashes_and_names_no_place() -> None:
    lines = [line for line in PINS.splitlines() if line and not line.lstrip().startswith("#")]
    heads = [line for line in lines if not line.startswith("    --hash=sha256:")]
    assert all(line.endswith("\\") for line in heads), "a pin without a hash"
    assert len(heads) == len(lock.pins(PINS)) > 100
    assert not re.search(r"https?:|file:|git\+|--index|--find-links|(?<![\w.])/\w", PINS)


def test_conda_has_the_same_versions() -> None:
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert text == lock.conda(PINS), "environment.yml is not what constraints.txt says: make lock"
    parts = yaml.safe_load(text)["dependencies"]
    (pip,) = [part["pip"] for part in parts if isinstance(part, dict)]
    listed = {canonicalize_name(Requirement(x).name): Requirement(x) for x in pip if not x.startswith("-")}
    assert listed == pinned()
    assert "-e ." in pip
    assert f"python={lock.CONDA_PYTHON}" in parts
    assert lock.CONDA_PYTHON in PYTHONS


def test_supported_pythons_are_told_alike() -> None:
    classifiers = [c.rsplit(" ", 1)[-1] for c in PROJECT["project"]["classifiers"] if "Python :: 3." in c]
    assert tuple(classifiers) == PYTHONS
    oldest = ".".join(map(str, environment.OLDEST))
    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest == PYTHONS[0]
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_gets_every_requirement_on_linux(python: str) -> None:
    machine = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}
    machine |= {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
    have = {name for name, pin in pinned().items() if pin.marker is None or pin.marker.evaluate(machine)}
    need = {canonicalize_name(r.name) for r in wanted() if r.marker is None or r.marker.evaluate(machine)}
    assert need <= have


def test_what_is_installed_here_is_what_is_pinned() -> None:
    here = {name: pin for name, pin in pinned().items() if pin.marker is None or pin.marker.evaluate()}
    wrong = {}
    for name, pin in here.items():
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            have = "absent"
        if have == "absent" or Version(have) != version(pin):
            wrong[name] = (have, str(pin))
    assert not wrong, "this Python is not the environment of the course: run the tests by `make test`"


# the command that makes it -------------------------------------------------------------------------------------------


def run(tmp_path: Path, code: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of tools/environment.py, in a folder of its own, after some lines that prepare its world."""
    (tmp_path / "tools").mkdir()
    for name in ("constraints.txt", "pyproject.toml", "tools/environment.py"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    start = f"import sys; sys.path.insert(0, {str(tmp_path / 'tools')!r}); import environment as e\n"
    command = [sys.executable, "-c", start + code + "\nsys.argv = ['x']; sys.exit(e.main())"]
    environ = {**os.environ, **changes}
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=300)


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1
    (line,) = result.stderr.strip().splitlines()
    return line


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    line = one_line(run(tmp_path, "class V(tuple): pass\nsys.version_info = V((3, 9, 2))"))
    assert "Python 3.9 is too old" in line
    assert "PYTHON=" in line


def test_a_python_without_ensurepip_is_refused_in_one_line(tmp_path: Path) -> None:
    line = one_line(run(tmp_path, "sys.modules['ensurepip'] = None"))
    assert "apt install python3-venv" in line
    assert not (tmp_path / ".venv").exists()


def test_no_network_is_told_in_one_line_and_leaves_no_stamp(tmp_path: Path) -> None:
    # A closed loopback port stands for the index: the same failure as an unplugged cable, without the wait.
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    result = run(tmp_path, "", **nowhere)
    assert one_line(result).startswith("No network")
    assert "Traceback" not in result.stdout + result.stderr
    assert not list(tmp_path.glob(".venv/*/ready.json"))


def test_a_stamp_counts_only_with_an_interpreter_and_whole(tmp_path: Path) -> None:
    assert environment.stamped(tmp_path) == {}
    (tmp_path / "ready.json").write_text('{"a": "b"', encoding="utf-8")
    assert environment.stamped(tmp_path) == {}
    environment.write_stamp(tmp_path, {"a": "b"})
    assert environment.stamped(tmp_path) == {}, "no interpreter"
    (tmp_path / "bin").mkdir()
    environment.python(tmp_path).write_text("")
    assert environment.stamped(tmp_path) == {"a": "b"}


@pytest.mark.parametrize("old", ["3.6", "3.8"])
def test_the_file_can_be_read_by_the_pythons_it_refuses(old: str) -> None:
    """An old Python must get as far as the message: no newer syntax may stand in this file."""
    import ast

    text = (ROOT / "tools" / "environment.py").read_text(encoding="utf-8")
    major, minor = map(int, old.split("."))
    tree = ast.parse(text, feature_version=(major, minor))
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.NamedExpr | ast.Match)]
    assert "from __future__ import annotations" not in text


def test_every_target_of_the_makefile_is_listed_and_has_its_command() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?m)^([a-z]+):.*## ", text))
    listing = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert targets >= {"book", "test", "serve", "notebooks", "lab", "lock", "clean"}
    assert all(re.search(rf"make {target}\b", listing) for target in targets)
    modules = re.findall(r"-m tools\.(\w+)", text)
    assert modules
    assert all((ROOT / "tools" / f"{name}.py").is_file() for name in modules)


def test_a_missing_python_is_told_in_one_line() -> None:
    command = ["make", "env", "PYTHON=python0.0"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode
    own = [line for line in result.stderr.splitlines() if not line.startswith(("make:", "make["))]  # [1] inside make
    assert own == ["No usable Python named 'python0.0'. Install Python 3.11 or newer, or name one: PYTHON=python3.12"]


def test_a_long_silence_of_pip_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.Progress, "PATIENCE", -1)
    progress, over = environment.Progress(3), threading.Event()
    waits = iter([False, False, True])
    monkeypatch.setattr(over, "wait", lambda seconds: next(waits))
    progress("Collecting numpy==2.0.2 (from -r constraints.txt (line 7))\n")
    progress.watch(over)
    assert re.fullmatch(r"( +0 s  still fetching numpy\n){2}", capsys.readouterr().out)
