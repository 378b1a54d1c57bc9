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
# On paper the sheet stands alone on one A4 page: what surrounds it on its page of the site is not printed. In a print
# of the whole book, whose chapters begin at a mark, it stays among its neighbours.
_ALONE = "body:has(.cheatsheet):not(:has(span[id^='document-']))"
PRINT = (
    ".cheatsheet table { font-size: .82em; width: 100%; } .cheatsheet caption { text-align: left; font-weight: bold; }"
    ".cheatsheet .columns { display: grid; gap: 0 1.5em; "
    "grid-template-columns: repeat(auto-fit, minmax(min(100%, 20em), 1fr)); }"
    # the site's own rules for tables and headings are more specific than these, hence !important
    "@page { size: A4; margin: 10mm; } @media print {"
    f" {_ALONE} section > :not(h1):not(:has(.cheatsheet)), {_ALONE} :is(.cell_input, .sheets, h1 .headerlink)"
    " { display: none !important; }"
    f" {_ALONE} :is(main, article, section, div) {{ margin: 0; padding: 0; border: 0; max-width: none; }}"
    f" {_ALONE} h1 {{ font-size: 14pt !important; margin: 0 0 2mm !important; text-align: left !important; }}"
    " .cheatsheet .columns { grid-template-columns: 11fr 10fr; gap: 0 5mm; align-items: start; }"
    " .cheatsheet table { display: table !important; width: 100% !important; overflow: visible !important;"
    " font-size: 7.2pt !important; line-height: 1.25 !important; margin: 0 0 2.5mm !important; }"
    " .cheatsheet :is(td, th) { padding: .35mm 1.2mm .35mm 0 !important; white-space: normal; text-align: left;"
    " width: auto !important; min-width: 0 !important; font-size: inherit !important;"
    " line-height: inherit !important; }"
    " .cheatsheet > table tbody th { white-space: nowrap; }"
    " .cheatsheet caption { font-size: 8pt !important; padding: 0 0 .5mm !important; }"
    " .cheatsheet li { font-size: 7.5pt; line-height: 1.3; } .cheatsheet ul { margin: 0; padding-left: 4mm; } }"
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
    """The tables of one page: those of the full width, then columns side by side; and sentences to remember."""

    wide: tuple[Table, ...]
    columns: tuple[tuple[Table, ...], ...]
    rules: tuple[str, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables in the order of the page."""
        return (*self.wide, *(t for column in self.columns for t in column))

    def _repr_html_(self) -> str:
        columns = "".join(f"<div>{''.join(t.html() for t in column)}</div>" for column in self.columns)
        rules = "".join(f"<li>{escape(rule)}</li>" for rule in self.rules)
        wide = "".join(t.html() for t in self.wide)
        body = f"{wide}<div class='columns'>{columns}</div><ul>{rules}</ul>"
        return f"<style>{PRINT}</style><div class='cheatsheet'>{body}</div>"

    def __repr__(self) -> str:
        rows = [f"{t.title}\n" + "\n".join("  ".join(r) for r in t.rows) for t in self.tables]
        return "\n\n".join([*rows, "\n".join(self.rules)])


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
    head = ("machine", "bf16", "HBM", "egress inside", "inside", "across", "domain, across", "TP of 70B, one axis")
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
                "threshold of the rest / p; bubble (p-1)/(vm+p-1)",
                "1/p",
            ),
            ("DP across pods", "batch", "0", "8DF a pod", "B/pod > C/(W_dcn p)", "as inside"),
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
        ("parameters, 6 N_params T", f"{show(n_params(m), 'param')}, {show(flops, 'FLOP')}"),
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


def schedules() -> Table:
    """Bubble and activations of pipeline schedules, in letters and for 8 stages."""
    p, m, v, f, i, w = 8, 32, 4, 1.0, 1.0, 1.0
    rows = (
        ("GPipe", "(p-1)(F+B)", "m", show(pp.bubble_1f1b(p, f, i, w), "")),
        ("1F1B", "(p-1)(F+B)", "p - rank", show(pp.bubble_1f1b(p, f, i, w), "")),
        ("interleaved, v chunks", "(p-1)(F+B)/v", "somewhat more", show(pp.bubble_interleaved(p, v, f, i, w), "")),
        ("ZB-H1", "(p-1)(F+I-W)", "as 1F1B", show(pp.bubble_zb_h1(p, f, i, w), "")),
        ("DualPipe", "(p/2-1)(ω(F+B)+B-3W)", "p+1, weights twice", show(pp.bubble_dualpipe(p, f, i, w), "")),
    )
    setting = f"p = {p}, F = I = W = 1, v = {v}; work {3 * m} slots at m = {m}"
    title = f"Pipelines: idle time of a step, activations held; B = I + W; ω = pair over F + B; {setting}"
    return Table(title, ("schedule", "idle", "microbatches", "slots"), rows)


def budget_rows() -> Table:
    """The formulas of a budget."""
    rows = (
        ("training FLOPs", "6 N_params T (a third more to recompute all)"),
        ("attention FLOPs", "causal: 6 L S H h a token, both passes"),
        ("days", "6 N_params T / (N C MFU 86400)"),
        ("dollars", "chips x hours x price, / goodput"),
        ("MFU cap, FSDP", "(B/N) / (C/(W p)), at most 1"),
        ("MFU cap, DP", "3 / (1 + 2ρ), if ρ = C/(W p) / (B/N) > 1"),
        ("checkpoint every", "sqrt(2 x saving x time between failures)"),
        ("checkpoints kept", "e D L x a group's tokens in flight / Y"),
        ("gathered layer", "e x parameters of a layer / Y"),
        ("logits", "4 bytes x tokens x vocabulary / Y"),
    )
    return Table("Budget and memory", ("what", "formula"), rows)


RULES = (
    "Count FLOPs, count bytes, divide by rates, compare, solve for the knob.",
    "W is egress: data sheets add both directions of a link, a collective is limited by what one participant sends.",
    "The slowest level decides: a node sends with all its cards, and TP inside does not shrink what a node gathers.",
    "A pipeline divides the traffic a token causes, and is paid with a bubble: count the microbatches, B/(dp S).",
    "MFU is an input until you have a witness: cap it by the network, then compare with a published run.",
)


def page() -> Page:
    """The whole sheet."""
    columns = ((schedules(), collective_costs(), memory_rows()), (llama_rows(), budget_rows()))
    return Page((hardware(), strategies()), columns, RULES)
