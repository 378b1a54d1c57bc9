"""The catalogue: data sheets in TOML, read strictly.

Every figure is a table with a value and its unit, a source, a date and a kind. The loader refuses a figure that
leaves a factor of two open: a bandwidth without direction, a peak that does not say `dense = true`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from scaling_lib.units import parse

DATA = Path(__file__).parent / "data"
KINDS = ("datasheet", "measured", "assumption")
_REQUIRED = ("value", "source", "date", "kind")


class CatalogueError(ValueError):
    """An entry that is missing, incomplete or contradicts itself."""


def near(name: str, names: Iterable[str]) -> str:
    """Message tail for an unknown name: the close ones, or all."""
    import difflib  # 6 ms at import, needed only in messages

    names = sorted(names)
    close = difflib.get_close_matches(str(name), names, n=4, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(names)}"


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read one TOML file. Raises CatalogueError with path and line when it cannot be read."""
    import tomllib  # 10 ms at import, needed only when a file is read

    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise CatalogueError(f"cannot read {path}: {error.strerror}; check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path} is not valid TOML: {error}") from None


@cache
def entries(stem: str) -> dict[str, Any]:
    """All entries of scaling_lib/data/<stem>.toml by name, without the table of sources."""
    return {name: entry for name, entry in read_toml(DATA / f"{stem}.toml").items() if name != "sources"}


def find(stem: str, name: str) -> dict[str, Any]:
    """One entry of the product's own data. Raises CatalogueError that lists near names."""
    known = entries(stem)
    if name not in known:
        raise CatalogueError(f"unknown {stem.rstrip('s').replace('_', ' ')} {name!r}: {near(name, known)}")
    entry: dict[str, Any] = known[name]
    return entry


def only(entry: Any, allowed: Iterable[str], where: str) -> None:
    """Raise CatalogueError for a key nobody reads: a misspelt optional key would silently mean its default."""
    if not isinstance(entry, Mapping):
        raise CatalogueError(f"{where}: {entry!r} is no table; write it as one, see scaling_lib/data for examples")
    known = (*allowed, "name", "note")
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise CatalogueError(f"{where}: unknown key {unknown[0]!r}: {near(unknown[0], known)}")


def figure(entry: Mapping[str, Any], key: str, unit: str, where: str) -> float:
    """The figure `key` of an entry as an SI float.

    unit: the dimension wanted, e.g. "B/s". Raises CatalogueError when the figure is absent, has no unit, source,
    date or kind, or is a bandwidth without direction.
    """
    table = entry.get(key)
    if not isinstance(table, Mapping):
        raise CatalogueError(
            f'{where}: figure {key!r} is missing; write {key} = {{ value = "…", source = "…", date = "…", kind = "…" }}'
        )
    lacking = [k for k in _REQUIRED if table.get(k) in (None, "")]
    if lacking:
        raise CatalogueError(
            f"{where}: figure {key!r} lacks {', '.join(lacking)}; every figure says value, source, date, kind"
        )
    if table["kind"] not in KINDS:
        raise CatalogueError(f"{where}: figure {key!r} has kind {table['kind']!r}; use one of {', '.join(KINDS)}")
    try:
        value = parse(str(table["value"]), unit)
    except ValueError as error:
        raise CatalogueError(f"{where}: figure {key!r}: {error}") from None
    if value < 0:
        raise CatalogueError(f"{where}: figure {key!r} is {table['value']}, below zero; check the sign")
    return value


def positive(entry: Mapping[str, Any], key: str, unit: str, where: str) -> float:
    """A figure that something is later divided by. Raises CatalogueError as `figure` does, and when it is zero."""
    value = figure(entry, key, unit, where)
    if value == 0:
        raise CatalogueError(f"{where}: figure {key!r} is zero, but others are divided by it; write what it is")
    return value


def bandwidth(entry: Mapping[str, Any], key: str, where: str, direction: str, per: str | None = None) -> float:
    """A bandwidth in bytes/s that states its direction (and, on a link, per what).

    Raises CatalogueError when the direction is absent or another one: "both" is twice an egress.
    """
    value = positive(entry, key, "B/s", where)
    said = entry[key].get("direction")
    if said != direction:
        raise CatalogueError(
            f"{where}: bandwidth {key!r} has direction {said!r}; write the {direction} figure and "
            f'direction = "{direction}" (a sum of both directions is twice the egress)'
        )
    if per is not None and entry[key].get("per") != per:
        raise CatalogueError(f'{where}: bandwidth {key!r} is per {entry[key].get("per")!r}; write per = "{per}"')
    return value


def peak(entry: Mapping[str, Any], key: str, where: str) -> float:
    """A peak in FLOP/s that says it is dense. Raises CatalogueError otherwise: a sparse peak is twice the dense one."""
    value = positive(entry, key, "FLOP/s", where)
    if entry[key].get("dense") is not True:
        raise CatalogueError(
            f"{where}: peak {key!r} must say dense = true; data sheets often print the sparse figure, twice it"
        )
    return value


def whole(entry: Mapping[str, Any], key: str, where: str, least: int = 1) -> int:
    """A whole number of an entry, at least `least`. Raises CatalogueError otherwise."""
    value = entry.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        said = "missing" if value is None else repr(value)
        raise CatalogueError(f"{where}: {key} is {said}; write a whole number of at least {least}")
    return value


def choice(entry: Mapping[str, Any], key: str, where: str, among: tuple[Any, ...]) -> Any:
    """A value of an entry that must be one of a few. Raises CatalogueError otherwise."""
    value = entry.get(key)
    if value not in among or type(value) not in {type(a) for a in among}:
        raise CatalogueError(f"{where}: {key} is {value!r}; use one of {', '.join(map(repr, among))}")
    return value
