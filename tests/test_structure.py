"""The shape of the repository: stems, stored outputs, table of contents, where numbers may stand, what imports what."""

from __future__ import annotations

import ast
import csv
import hashlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from scaling_lib.model import model, n_active_params, n_params
from scaling_lib.units import parse

ROOT = Path(__file__).parents[1]
BOOK, LIBRARY = ROOT / "book", ROOT / "scaling_lib"
CHAPTERS = sorted(p.stem for p in (BOOK / "src").glob("*.md"))
NOTEBOOKS = sorted([*BOOK.glob("*.ipynb"), *ROOT.glob("exercises/*.ipynb"), *ROOT.glob("exercises/solutions/*.ipynb")])
# Chapters that tell or collect and have no formula of their own, and the two whose module has the name of its subject.
PROSE = {"index", "notation", "reality", "interview", "cheatsheet", "own", "errata"}
MODULES = {"scaling": "roofline", "compiler": "xla"}
FORMULAS = ("roofline", "collectives", "memory", "dp", "fsdp", "tp", "hybrid", "pp", "crosspod", "budget", "decide")
RULERS = ("units", "ledger", "precision", "job", "rules")
HEAVY = {"numpy", "matplotlib", "ipywidgets", "IPython", "jax", "scipy", "sympy", "pint"}
OUTSIDE = HEAVY | {"os", "io", "sys", "pathlib", "json", "csv", "tomllib", "subprocess", "socket", "urllib", "shutil"}


def tracked() -> list[Path]:
    """Return the files of the repository; without git (an unpacked archive) there is nothing to look at."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def present(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if (LIBRARY / f"{name}.py").is_file()]


# stems and notebooks -------------------------------------------------------------------------------


def test_every_notebook_belongs_to_its_source() -> None:
    check = [sys.executable, "-m", "tools.notebooks", "--check"]
    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("stem", [c for c in CHAPTERS if c not in PROSE])
def test_a_chapter_has_its_module_and_tests(stem: str) -> None:
    module = MODULES.get(stem, stem)
    assert (LIBRARY / f"{module}.py").is_file(), f"book/src/{stem}.md has no scaling_lib/{module}.py"
    assert (ROOT / "tests" / f"test_{module}.py").is_file(), f"scaling_lib/{module}.py has no tests/test_{module}.py"


@pytest.mark.parametrize("stem", [c for c in CHAPTERS if c not in PROSE - {"reality"}])
def test_a_chapter_asks_for_two_guesses_with_their_ranges_and_answers_them(stem: str) -> None:
    text = (BOOK / "src" / f"{stem}.md").read_text(encoding="utf-8")
    asked = re.search(r"```{admonition} Before you read: two guesses\n:class: predict\n(.*?)\n```", text, re.DOTALL)
    told = re.search(r"````{admonition} The two guesses\n:class: dropdown\n(.*?)\n````", text, re.DOTALL)
    assert asked is not None
    assert told is not None
    first = "Write down each with a range you are 90% sure of. The answers are at the end of the page."
    assert asked[1].startswith(first)
    for part in (asked, told):
        assert re.findall(r"(?m)^(\d)\. ", part[1]) == ["1", "2"]


def test_the_table_of_contents_lists_exactly_the_chapters() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    listed = [toc["root"], *files(toc)]
    assert len(listed) == len(set(listed)), "a chapter is listed twice"
    pages = {p.relative_to(ROOT).with_suffix("").as_posix() for p in BOOK.glob("*.ipynb")}
    assert {name for name in listed if name.startswith("book/")} == pages


def files(node: Any) -> Iterator[str]:
    """Yield each `file` entry below a node of the table of contents."""
    for child in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
        yield from files(child)
    if isinstance(node, dict) and "file" in node:
        yield node["file"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_notebook_is_stored_as_run_from_the_top(path: Path) -> None:
    """nbval compares only cells with an execution count, and never what is not stored."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    assert counts == list(range(1, len(code) + 1)), f"execution counts are {counts}"
    assert not code or any(cell.outputs for cell in code), "no cell has an output"
    errors = [
        cell.source
        for cell in code
        for output in cell.outputs
        if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", [])
    ]
    assert not errors, f"a stored output is an error, of the cell: {errors[:1]}"
    assert "widgets" not in notebook.metadata
    assert "version" not in notebook.metadata.language_info


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_stored_pictures_are_svg_with_a_text_alternative(path: Path) -> None:
    """nbval never compares bitmaps, they do not follow the reader's theme, and a picture without words excludes."""
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            assert not {"image/png", "image/jpeg"} & set(data), f"a bitmap is stored by: {cell.source}"
            svg = data.get("image/svg+xml", "")
            named = "aria-label" in svg or cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
            assert not svg or named, f"a picture without alt text is stored by: {cell.source}"


# numbers -------------------------------------------------------------------------------------------


def plain_constant(value: float) -> bool:
    """Powers of ten and of two, and the seconds of an hour and a day, belong to no one machine or model."""
    powers = {10.0**n for n in range(3, 25)} | {2.0**n for n in range(10, 60)}
    return value < 1000 or value in powers or value in {3600.0, 86400.0}


def catalogue_numbers() -> dict[float, str]:
    """Return each number of hardware, model and price data in SI units, with the place where it stands."""
    found: dict[float, str] = {}
    for stem in ("chips", "clusters", "models", "prices"):
        data = tomllib.loads((LIBRARY / "data" / f"{stem}.toml").read_text(encoding="utf-8"))
        for where, value in leaves(data, stem):
            found.setdefault(value, where)
    for name in tomllib.loads((LIBRARY / "data" / "models.toml").read_text(encoding="utf-8")):
        if name != "sources":
            found.setdefault(float(n_params(model(name))), f"parameters of {name}")
            found.setdefault(float(n_active_params(model(name))), f"active parameters of {name}")
    return {value: where for value, where in found.items() if not plain_constant(value)}


def leaves(node: Any, where: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers below a node, those written as text with a unit in SI."""
    if isinstance(node, dict):
        for key, child in node.items():
            if key not in ("sources", "date", "source"):
                yield from leaves(child, f"{where}.{key}")
    elif isinstance(node, list):
        for child in node:
            yield from leaves(child, where)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield where, float(node)
    elif isinstance(node, str) and (quantity := re.fullmatch(r"([\d.]+(?:e\d+)?) (\S+)", node)):
        try:
            yield where, parse(node, quantity[2].lstrip("kMGTPE").replace("iB", "B"))
        except ValueError:
            return  # text that only looks like a quantity


def test_the_catalogue_is_read_as_numbers() -> None:
    """The search below would pass on anything if it looked for nothing: these must be among what it looks for."""
    assert {989e12, 450e9, 3.35e12, 28672.0, 128256.0, 70_553_706_496.0} <= set(catalogue_numbers())


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.py")), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_number_of_the_catalogue_stands_in_code(path: Path) -> None:
    numbers = catalogue_numbers()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [
        f"line {node.lineno}: {node.value:g} is {numbers[float(node.value)]}; read it from scaling_lib/data"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and float(node.value) in numbers
    ]


def test_csv_tables_have_as_many_fields_as_headings() -> None:
    for path in sorted((LIBRARY / "data").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))
        assert len({len(row) for row in rows}) == 1, f"{path.name}: rows of different lengths"


# what imports what ---------------------------------------------------------------------------------


def imported(path: Path) -> set[str]:
    """Return the top-level names of all modules that a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("name", present(FORMULAS + RULERS))
def test_formula_modules_only_compute(name: str) -> None:
    """Only units may meet numpy, inside functions: it branches on arrays for all the others."""
    path = LIBRARY / f"{name}.py"
    assert not imported(path) & (OUTSIDE - {"numpy"} if name == "units" else OUTSIDE)
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    called = {node.func.id for node in nodes if isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval", "__import__"}


def fresh(code: str, *options: str) -> str:
    """Run code in a new interpreter and return what it prints."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout


def test_importing_the_library_loads_nothing_heavy() -> None:
    loaded = set(fresh("import scaling_lib, sys; print(*{m.split('.')[0] for m in sys.modules})").split())
    assert "scaling_lib" in loaded
    assert not loaded & HEAVY


def test_the_core_runs_on_the_standard_library_alone() -> None:
    """-I -S hides every installed package: what a browser's Python without extra wheels would see."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import scaling_lib; print(len(scaling_lib.__all__))"
    assert int(fresh(code, "-I", "-S")) > 0


def test_the_public_surface_is_small_and_real() -> None:
    import scaling_lib

    assert len(scaling_lib.__all__) <= 30
    assert len(set(scaling_lib.__all__)) == len(scaling_lib.__all__)
    assert all(hasattr(scaling_lib, name) for name in scaling_lib.__all__)


# what must not be in the repository ----------------------------------------------------------------

# Written in pieces so that this file does not find itself.
HOSTS = ("pypi" + r"\.org", "pythonhosted" + r"\.org", "registry" + r"\.npmjs")
FOREIGN = re.compile("|".join(["/" + r"(?:root|home/\w+|work|tmp|opt)/", *HOSTS]))
ALLOWED = {"book/_vendor", "scaling_lib/data"}


def test_no_place_of_one_machine_is_written_down() -> None:
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if any(name.startswith(prefix) for prefix in ALLOWED):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {match[0]}" for match in FOREIGN.finditer(text)]
    assert not found


def test_no_generated_or_large_file_is_tracked() -> None:
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        assert not re.search(r"(^|/)(_build|\.venv|\.cache|__pycache__|\.ipynb_checkpoints)/|\.pyc$", name), name
        assert path.stat().st_size < 5_000_000 or name.startswith("book/_vendor/"), f"{name} is larger than 5 MB"


def test_vendored_files_are_the_published_ones() -> None:
    """Each file below book/_vendor has its digest in SHA256SUMS, and each digest its file."""
    vendor = BOOK / "_vendor"
    lines = (vendor / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    wanted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    present = {p.relative_to(vendor).as_posix(): p for p in vendor.rglob("*") if p.is_file()}
    own = {"SHA256SUMS", "README.md"}
    assert set(wanted) == set(present) - own
    assert {n: hashlib.sha256(present[n].read_bytes()).hexdigest() for n in wanted} == wanted
    for folder in {name.split("/")[0] for name in wanted}:
        assert f"{folder}/LICENSE" in wanted, f"{folder} has no licence beside it"


def test_the_picture_of_the_readme_is_what_the_library_draws() -> None:
    from tools import picture

    assert picture.PATH.read_text(encoding="utf-8") == picture.picture(), "python -m tools.picture"
    assert picture.PATH.relative_to(ROOT).as_posix() in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_paths_and_commands_in_the_guides_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not (ROOT / link).exists()]
    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    unknown = set(re.findall(r"`(?:\$ )?make ([a-z]+)`", text)) - targets
    named = re.findall(r"`((?:book|scaling_lib|tests|tools|exercises)/[\w./]*)`", text)
    roots = [path for path in named if not (ROOT / path).exists()]
    assert not links
    assert not unknown
    assert not roots
