"""The cheat sheet: one printable page of thresholds, bytes and budgets, every number computed."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from scaling_lib import budget, collectives, crosspod, dp, hybrid, pp, tp
from scaling_lib.hardware import cluster
from scaling_lib.model import model, n_params
from scaling_lib.precision import RECIPES
from scaling_lib.units import GB, show

CLUSTERS = ("dgx-a100", "dgx-h100", "dgx-b200", "gb200-nvl72", "mi300x-8", "tpu-v5p", "tpu-v6e", "tpu-v7")
MANY = 10**5
# on paper the whole sheet fits one A4 page
PRINT = (
    ".cheatsheet table { font-size: .82em; width: 100%; } .cheatsheet caption { text-align: left; font-weight: bold; }"
    "@page { size: A4; margin: 10mm; } @media print { .cheatsheet table { font-size: 7.5pt; margin: 0 0 2mm; }"
    " .cheatsheet td, .cheatsheet th { padding: .3mm 1.2mm; } }"
)


@dataclass(frozen=True)
class Table:
    """A titled table of text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def html(self) -> str:
        """The table, its first column as row headers."""
        head = "".join(f"<th scope='col'>{escape(h)}</th>" for h in self.head)
        body = "".join(
            f"<tr><th scope='row'>{escape(row[0])}</th>{''.join(f'<td>{escape(c)}</td>' for c in row[1:])}</tr>"
            for row in self.rows
        )
        return (
            f"<table><caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


@dataclass(frozen=True)
class Page:
    """The tables of one page."""

    tables: tuple[Table, ...]

    def _repr_html_(self) -> str:
        return f"<style>{PRINT}</style><div class='cheatsheet'>{''.join(t.html() for t in self.tables)}</div>"

    def __repr__(self) -> str:
        rows = [f"{t.title}\n" + "\n".join("  ".join(r) for r in t.rows) for t in self.tables]
        return "\n\n".join(rows)


def hardware() -> Table:
    """Thresholds of each machine: tokens per chip inside and across, and the widest TP of Llama 3 70B."""
    llama, rows = model("llama-3-70b"), []
    for name in CLUSTERS:
        c = cluster(name)
        peak, inner, outer = c.chip.flops("bf16"), c.levels[0].chip_egress(), c.levels[-1].chip_egress()
        outside = c.domain * outer
        rows.append(
            (
                name,
                show(peak, "FLOP/s"),
                show(c.chip.hbm, "B"),
                show(inner, "B/s"),
                show(dp.critical_tokens(peak, inner), ""),
                show(dp.critical_tokens(peak, outside), ""),
                show(crosspod.critical_pod_tokens(peak, outer), ""),
                show(tp.max_degree(llama.d_ff, peak, c.levels[0].chip_egress(1)), ""),
            )
        )
    head = ("machine", "bf16", "HBM", "egress inside", "inside", "across", "domain, across", "TP of 70B")
    title = "Machines: egress of one chip, dense peak, tokens per chip inside a domain and across (the larger decides)"
    return Table(title, head, tuple(rows))


def strategies() -> Table:
    """What each strategy cuts, moves and needs."""
    return Table(
        "Per two-matmul layer, bf16",
        ("strategy", "cuts", "bytes forward", "bytes backward", "compute-bound when", "state per chip"),
        (
            ("DP", "batch", "0", "8DF", "B/X > C/W", "all"),
            ("FSDP (ZeRO-3)", "batch, state", "4DF", "8DF", "B/X > C/W", "1/X, and gathered layers"),
            ("TP", "width", "4BD/X", "4BD/X", "F > Y C/W", "1/Y"),
            ("FSDP x TP, one fabric", "both", "4DF/Y, 4BD/X", "8DF/Y, 4BD/X", "B/N > C²/(W_X W_Y F)", "1/N"),
            ("FSDP x TP, GPU nodes", "both", "4DF a node", "8DF a node", "B/N > C/W_node, whatever Y", "1/N"),
            (
                "PP",
                "layers",
                "B/X D e/Y a boundary",
                "the same",
                "threshold of the rest / PP; bubble (p-1)/(vm+p-1)",
                "1/p",
            ),
            ("DP across pods", "batch", "0", "8DF a pod", "B/pod > C/(W PP)", "as inside"),
        ),
    )


def collective_costs() -> Table:
    """Seconds of each collective, and of 1 GB over an H100 node."""
    w, n = cluster("dgx-h100").levels[0].egress, 8
    rows = (
        ("all-gather, reduce-scatter", "V(n-1)/(nW)", show(collectives.all_gather(GB, n, w), "s")),
        ("all-reduce", "2V(n-1)/(nW)", show(collectives.all_reduce(GB, n, w), "s")),
        ("all-to-all", "V(n-1)/(n²W)", show(collectives.all_to_all(GB, n, w), "s")),
        ("hierarchy", "max over levels of V(n_i-1)/(n_i W_i)", "W_i: egress of a whole subtree"),
    )
    return Table("Collectives (V gathered bytes)", ("collective", "seconds", "1 GB, 8 H100"), rows)


def memory_rows() -> Table:
    """Bytes a parameter of the recipes."""
    names = ("bf16", "megatron", "no-master", "no-master-no-grads", "adam-8bit")
    rows = tuple((RECIPES[r].title, f"{RECIPES[r].total:g}") for r in names)
    return Table("Training state, bytes a parameter", ("recipe", "bytes"), rows)


def llama_rows() -> Table:
    """The running case in numbers."""
    m, c = model("llama-3-70b"), cluster("dgx-h100")
    peak, node = c.chip.flops("bf16"), c.egress(MANY)
    run = budget.reported("llama-3-70b")
    flops = budget.train_flops(n_params(m), run.tokens)
    v5p = cluster("tpu-v5p")
    axis = v5p.levels[0].egress
    batch, chips = 4 * 2**20, 8960
    hours = [show(t / 3600, "") for t in (budget.chip_seconds(flops, peak, 0.4), run.chip_seconds)]
    need, have = dp.critical_tokens(peak, node), batch / chips
    best = hybrid.x_opt(batch, m.d_ff, chips, 2 * axis, axis)
    fabric = hybrid.critical_tokens(v5p.chip.flops("bf16"), 2 * axis, axis, m.d_ff)
    bubbles = [show(pp.bubble_of_total(8, 8, v), "%") for v in (1, 5)]
    rows = (
        ("parameters, 6NT", f"{show(n_params(m), 'param')}, {show(flops, 'FLOP')}"),
        ("state, 16 B a parameter", show(n_params(m) * RECIPES["bf16"].total, "B")),
        ("8960 H100 at 40% MFU", f"{show(budget.seconds(flops, chips, peak, 0.4), 's')}, {hours[0]} GPU-hours"),
        ("reported", f"{hours[1]} GPU-hours: {show(budget.mfu(flops, run.chip_seconds, peak), '%')} MFU"),
        (
            "a batch of 4M there",
            f"{show(have, 'token/chip')} against {show(need, '')}: MFU at most {show(have / need, '%')}",
        ),
        (
            "with PP 8",
            f"threshold {show(need / 8, '')}; bubble at 8 microbatches {bubbles[0]}, with 5 chunks {bubbles[1]}",
        ),
        ("on a v5p pod", f"best FSDP {show(best, '')}, threshold {show(fabric, 'token/chip')}"),
    )
    return Table("Llama 3 70B", ("what", "value"), rows)


def page() -> Page:
    """The whole sheet."""
    return Page((hardware(), strategies(), collective_costs(), memory_rows(), llama_rows()))
