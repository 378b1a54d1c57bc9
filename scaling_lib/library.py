"""Own data: a TOML file of the reader's chips, clusters and models, or a Hugging Face config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from scaling_lib import catalogue
from scaling_lib.catalogue import CatalogueError
from scaling_lib.hardware import Chip, Cluster, chip_from, cluster_from
from scaling_lib.hardware import cluster as catalogue_cluster
from scaling_lib.model import TransformerConfig, config_from, read_hugging_face
from scaling_lib.model import model as catalogue_model

T = TypeVar("T")
_TABLES = ("sources", "chips", "clusters", "models")


@dataclass(frozen=True)
class Library:
    """What one file holds, by name."""

    chips: dict[str, Chip] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    models: dict[str, TransformerConfig] = field(default_factory=dict)


def load(path: str | Path) -> Library:
    """Read a reader's own file: TOML with tables [chips.NAME], [clusters.NAME], [models.NAME], or a config.json.

    Entries follow the same strict rules as the product's data sheets. Raises CatalogueError that says what is wrong.
    """
    if Path(path).suffix == ".json":
        config = read_hugging_face(path)
        return Library(models={config.name: config})
    tables = catalogue.read_toml(path)
    unknown = [name for name in tables if name not in _TABLES]
    if unknown:
        raise CatalogueError(f"{path}: unknown table {unknown[0]!r}; {catalogue.near(unknown[0], _TABLES)}")
    for kind in ("chips", "clusters", "models"):
        if not isinstance(tables.setdefault(kind, {}), dict):
            raise CatalogueError(f"{path}: {kind} holds no entries by name; write [{kind}.NAME]")
    chips = {name: chip_from(name, entry) for name, entry in tables["chips"].items()}
    clusters = {name: cluster_from(name, entry, chips) for name, entry in tables["clusters"].items()}
    models = {name: config_from(name, entry) for name, entry in tables["models"].items()}
    if not (chips or clusters or models):
        raise CatalogueError(f"{path} holds no chips, clusters or models; see scaling_lib/data for examples")
    return Library(chips, clusters, models)


def model(name: str) -> TransformerConfig:
    """A model by catalogue name, or from a file (config.json, or TOML with one model, or `file.toml:name`)."""
    path, name_in_file = _split(name)
    return _only(load(path).models, name_in_file, path, "model") if path else catalogue_model(name)


def cluster(name: str) -> Cluster:
    """A cluster by catalogue name, or from a TOML file with one cluster, or `file.toml:name`."""
    path, name_in_file = _split(name)
    return _only(load(path).clusters, name_in_file, path, "cluster") if path else catalogue_cluster(name)


def _split(name: str) -> tuple[str, str]:
    """Path and name of `file.toml:name`; an empty path for a catalogue name."""
    head, _, tail = name.rpartition(":")
    if head.endswith((".toml", ".json")):
        return head, tail
    return (name, "") if name.endswith((".toml", ".json")) else ("", name)


def _only(found: dict[str, T], name: str, path: str, kind: str) -> T:
    """The named entry of a file, or its only one."""
    if name:
        if name not in found:
            raise CatalogueError(
                f"{path} has no {kind} {name!r}: {catalogue.near(name, found) if found else 'it has none'}"
            )
        return found[name]
    if not found:
        raise CatalogueError(f"{path} holds no {kind}: give a file with one, or a name of the catalogue")
    if len(found) > 1:
        raise CatalogueError(f"{path} holds {len(found)} {kind}s ({', '.join(found)}): name one, as in {path}:NAME")
    return next(iter(found.values()))
