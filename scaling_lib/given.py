"""What a question takes from the catalogue: figures that a person on paper needs and the prompt does not say.

Bandwidths are egress, what one chip sends while it receives as much; peaks are dense.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scaling_lib import catalogue
from scaling_lib.cheatsheet import Table
from scaling_lib.hardware import Chip, Cluster, chip, cluster
from scaling_lib.model import TransformerConfig, model, n_active_params, n_params
from scaling_lib.questions import Instance, in_unit, pretty, trim
from scaling_lib.units import show

# (what needs it, column of an exam's table, name in a line)
MACHINES = (
    ("peak", "dense bf16", "dense bf16 peak"),
    ("fp8", "dense fp8", "dense fp8 peak"),
    ("hbm", "HBM", "HBM"),
    ("hbm_bandwidth", "HBM, read and write", "HBM bandwidth"),
    ("network", "egress of a chip inside the domain", "egress of a chip inside the domain"),
    ("network", "to other domains", "to other domains"),
    ("network", "domain", "domain"),
)
MODELS = (
    ("params", "parameters", ""),
    ("params", "active a token", "active a token"),
    ("shape", "layers", "layers"),
    ("shape", "D", "D ="),
    ("shape", "F", "F ="),
    ("shape", "heads, query / key-value", "query / key-value heads"),
    ("shape", "head size", "head size"),
    ("shape", "vocabulary", "vocabulary"),
)
NOTE = (
    "Peaks are dense. Bandwidth is egress: what one chip sends while it receives as much. A node sends what its chips "
    "send together; on a torus the figure holds along each axis."
)


def _si(value: float, unit: str) -> str:
    """A figure with its unit."""
    return trim(show(value, unit, 4))


def _chip(c: Chip) -> dict[str, str]:
    """Dense peaks and memory of a chip, by column."""
    peaks = {f"dense {name}": _si(c.peak[name], "FLOP/s") for name in ("bf16", "fp8") if name in c.peak}
    return {**peaks, "HBM": _si(c.hbm, "B"), "HBM, read and write": _si(c.hbm_bandwidth, "B/s")}


def _cluster(c: Cluster) -> dict[str, str]:
    """Its chip, the egress of one chip at each level, and the chips of a domain."""
    inner, outer = c.levels[0], c.levels[-1]
    shape = " x ".join(map(str, inner.shape))
    return {
        **_chip(c.chip),
        "egress of a chip inside the domain": _si(inner.egress, "B/s") + (" an axis" if shape else ""),
        "to other domains": _si(outer.egress, "B/s"),
        "domain": f"{shape} torus" if shape else f"{c.domain} chips",
    }


def _model(m: TransformerConfig) -> dict[str, str]:
    """Size and shape of a model."""
    active = {"active a token": in_unit(n_active_params(m), "Gparam")} if m.moe else {}
    plain = {"layers": m.n_layers, "D": m.d_model, "F": m.d_ff, "head size": m.head_dim, "vocabulary": m.vocab_size}
    return {
        "parameters": in_unit(n_params(m), "Gparam"),
        **active,
        **{column: f"{value:,}" for column, value in plain.items()},
        "heads, query / key-value": f"{m.n_heads} / {m.n_kv_heads}",
    }


def rows(asked: Instance, needs: Collection[str]) -> dict[str, dict[str, str]]:
    """All figures of the machines or models that a question names, as far as something is needed of their kind."""
    needs, found = set(needs), {}
    for name in dict.fromkeys(v for v in asked.values.values() if isinstance(v, str)):
        if needs & {n for n, *_ in MACHINES}:
            if name in catalogue.entries("clusters"):
                found[cluster(name).title] = _cluster(cluster(name))
            elif name in catalogue.entries("chips"):
                found[chip(name).title] = _chip(chip(name))
        if needs & {n for n, *_ in MODELS} and name in catalogue.entries("models"):
            found[pretty(name)] = _model(model(name))
    return found


def lines(asked: Instance) -> list[str]:
    """The figures that one question needs and its prompt does not say, a line for each machine and model."""
    columns = [(column, label) for need, column, label in (*MACHINES, *MODELS) if need in asked.question.needs]
    told = [
        (
            title,
            [
                f"{label} {row[column]}".strip()
                for column, label in columns
                if row.get(column, asked.prompt) not in asked.prompt
            ],
        )
        for title, row in rows(asked, asked.question.needs).items()
    ]
    return [f"{title}: {', '.join(figures)}." for title, figures in told if figures]


def tables(asked: Sequence[Instance]) -> tuple[Table, ...]:
    """Machines and models of an exam: rows and columns that its questions need, but no figure that one asks for."""
    needs = {need for one in asked for need in one.question.needs}
    asked_for = {one.answer_text for one in asked}
    merged = {title: row for one in asked for title, row in rows(one, one.question.needs).items()}
    found = []
    for title, columns, mark in (("machine", MACHINES, "HBM"), ("model", MODELS, "layers")):
        body = [(name, row) for name, row in sorted(merged.items()) if mark in row]
        head = [column for need, column, _ in columns if need in needs and any(column in row for _, row in body)]
        if body:
            cells = tuple(
                (name, *("asked below" if row.get(c) in asked_for else row.get(c, "–") for c in head))
                for name, row in body
            )
            found.append(Table(f"Figures given: {title}s", (title, *head), cells))
    return tuple(found)
