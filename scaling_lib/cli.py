"""Command line: budgets, the catalogue and the article's claims. Text for people, --json for programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scaling_lib import budget, catalogue, claims, decide, library, memory
from scaling_lib.hardware import Chip, chip, cluster
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.ledger import Ledger
from scaling_lib.model import CONVENTIONS, flops_per_token, n_active_params, n_params
from scaling_lib.precision import RECIPES, recipe
from scaling_lib.rules import PlanError, Violation, require
from scaling_lib.units import HOUR, PREFIXES, UnitError, parse, show


def add_parser(subparsers: Any) -> None:
    """Add budget, models, chips, clusters and claims."""
    _add_budget(subparsers)
    for name, text, run in (
        ("models", "list the models with exact parameters and FLOPs per token", run_models),
        ("chips", "list the chips with dense peaks and memory", run_chips),
        ("clusters", "list the clusters with the egress of each level", run_clusters),
        ("claims", "the source article's claims against ours", run_claims),
    ):
        sub = subparsers.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.set_defaults(run=run)


_POWERS = {"k": 3, "M": 6, "G": 9, "B": 9, "T": 12}
_MOST = 1e18  # a million times the largest run: beyond it a slip of the keyboard, and soon the range of a float
_LEAST_MFU, _MOST_USD = 1e-6, 1e6


def whole(text: str) -> int:
    """A whole number such as 16384, 16e6, 16M, 16Mi (2^20 each) or 15T."""
    plain = text.replace("_", "").replace(",", "")
    try:
        if plain[-2:] in ("Ki", "Mi", "Gi", "Ti"):
            value = float(plain[:-2]) * PREFIXES[plain[-2:]]
        else:  # a power of ten is read with its digits: 1.1T times 1e12 would be no whole number
            value = float(f"{plain[:-1]}e{_POWERS[plain[-1]]}" if plain[-1:] in _POWERS else plain)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; write e.g. 16384, 16e6, 16M or 16Mi") from None
    if not 1 <= value <= _MOST or value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1 and at most {_MOST:.0e}")
    return int(value)


def fraction(text: str) -> float:
    """MFU as 0.4 or 40%."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction; write 0.4 or 40%") from None
    if not _LEAST_MFU <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1 (at least 0.0001%); write 0.4 or 40%")
    return value


def price(text: str) -> budget.Price:
    """A price per chip-hour: 2.0, "2.0 USD/h", or the name of a catalogue price, which says its chip."""
    try:
        given = parse(text, "USD/s") if "USD" in text else float(text) / HOUR
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except ValueError:  # no number, so a name
        return _named_price(text)
    if not 0 <= given * HOUR <= _MOST_USD:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no price; write dollars per chip-hour from 0 to a million, e.g. 2.0"
        )
    return budget.Price(text, "", given, "given")


def _named_price(text: str) -> budget.Price:
    """A price of the catalogue by name."""
    try:
        return budget.price(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; or write dollars per chip-hour, e.g. 2.0") from None


def rate(price: budget.Price | None, chip: Chip) -> float | None:
    """USD per chip-second; None without a price. Raises ValueError for a catalogue price of another chip."""
    if price is None:
        return None
    if price.chip not in ("", chip.name):
        fitting = [name for name, entry in catalogue.entries("prices").items() if entry["chip"] == chip.name]
        known = f"or {', '.join(fitting)}" if fitting else "the catalogue has none for it"
        raise ValueError(f"price {price.name} is of {price.chip}, not {chip.name}: give USD per chip-hour, {known}")
    return price.rate


def add_job(sub: argparse.ArgumentParser) -> None:
    """Add what every job says: model, cluster, chips, tokens of a step, precision; and the option for JSON."""
    sub.add_argument("--model", required=True, help="catalogue name, config.json, or FILE.toml[:NAME]")
    sub.add_argument("--cluster", required=True, help="catalogue name or FILE.toml[:NAME]")
    sub.add_argument("--chips", required=True, type=whole, help="chips of the run, e.g. 16384")
    sub.add_argument("--batch-tokens", required=True, type=whole, help="tokens of one step, e.g. 16777216 or 16Mi")
    sub.add_argument("--precision", default="bf16", help="of the matmuls: bf16 (default), fp8, fp4 if on the chip")
    sub.add_argument("--json", action="store_true", help="print JSON")


def _add_budget(subparsers: Any) -> None:
    text = "FLOPs, days, dollars and memory of a run, and the verdicts on its plan"
    sub = subparsers.add_parser("budget", help=text, description=text)
    add_job(sub)
    sub.add_argument("--tokens", required=True, type=whole, help="tokens of the whole run, e.g. 15e12 or 15T")
    sub.add_argument("--seq-len", type=whole, help="tokens of a sequence (default: the model's longest)")
    for name, what in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context")):
        sub.add_argument(f"--{name}", type=whole, default=1, help=f"{what}-parallel degree (default 1); DP is the rest")
    sub.add_argument("--chunks", type=whole, default=1, help="model chunks a device: interleaved above 1")
    sub.add_argument("--zero", type=int, choices=(0, 1, 2, 3), help="ZeRO stage (default: 3, or 1 with a pipeline)")
    sub.add_argument("--micro-batch", type=whole, default=1, help="sequences of a microbatch")
    sub.add_argument(
        "--recompute", choices=("none", "selective", "full"), default="none", help="activations computed again"
    )
    sub.add_argument("--recipe", default="bf16", help=f"bytes per parameter: {', '.join(RECIPES)}")
    sub.add_argument("--mfu", type=fraction, default=0.4, help="fraction of peak assumed (default 0.4)")
    sub.add_argument("--flops", choices=CONVENTIONS, default="6N", help="FLOPs convention (default 6N)")
    sub.add_argument(
        "--price", type=price, help="USD per chip-hour, or a price's name (default on H100s: article-cloud)"
    )
    sub.set_defaults(run=run_budget)


def job_from(args: argparse.Namespace) -> Job:
    """The job that the options of `budget` describe. Raises PlanError when it cannot run."""
    model, cluster_ = library.model(args.model), library.cluster(args.cluster)
    seq_len = args.seq_len or model.max_seq_len
    if seq_len is None:
        raise PlanError(f"{model.name} states no longest sequence: give --seq-len in tokens")
    inner = args.tp * args.pp * args.cp
    zero = args.zero if args.zero is not None else (3 if args.pp == 1 else 1)
    plan = ParallelPlan(
        dp=max(1, args.chips // inner),
        tp=args.tp,
        pp=args.pp,
        cp=args.cp,
        zero=zero,
        virtual_stages=args.chunks,
        micro_batch=args.micro_batch,
        schedule="interleaved" if args.chunks > 1 else "1f1b",
        recompute=args.recompute,
    )
    return Job(
        model, cluster_, plan, args.chips, args.batch_tokens, seq_len, args.tokens, args.precision, recipe(args.recipe)
    )


def run_budget(args: argparse.Namespace) -> int:
    """Print the budget of a job; rules that only warn are printed, fatal ones end with exit code 2."""
    job = job_from(args)
    rules = require(job)
    usual = budget.price("article-cloud")
    given = args.price or (usual if usual.chip == job.cluster.chip.name else None)
    result = budget.budget(job, args.mfu, rate(given, job.cluster.chip), args.flops)
    ledger, verdicts = memory.ledger(job), decide.explain(job)
    if args.json:
        print(json.dumps(_budget_json(job, result, ledger, verdicts, rules), indent=2))
    else:
        print(_budget_text(job, args.flops, result, ledger, verdicts, rules))
    return 0


def _budget_json(
    job: Job, result: budget.Budget, ledger: Ledger, verdicts: list[decide.Verdict], rules: list[Violation]
) -> dict[str, Any]:
    return {
        "model": job.model.name,
        "cluster": job.cluster.name,
        "plan": asdict(job.plan),
        "chips": job.chips,
        "batch_tokens": job.batch_tokens,
        "seq_len": job.seq_len,
        "tokens": job.tokens,
        "params": n_params(job.model),
        "flops": result.flops,
        "mfu": result.mfu,
        "mfu_cap": decide.mfu_cap(job),
        "chip_hours": result.chip_seconds / HOUR,
        "days": result.seconds / (24 * HOUR),
        "usd": result.usd,
        "memory_bytes": ledger.total,
        "memory": {part.name: part.value for part in ledger},
        "hbm_bytes": job.cluster.chip.hbm,
        "verdicts": [asdict(v) for v in verdicts],
        "warnings": [str(rule) for rule in rules],
    }


def _budget_text(
    job: Job,
    convention: str,
    result: budget.Budget,
    ledger: Ledger,
    verdicts: list[decide.Verdict],
    rules: list[Violation],
) -> str:
    lines = [*_budget_head(job, convention, result), "", ledger.text(), "", "verdicts", *map(str, verdicts)]
    if rules:
        lines += ["", "warnings", *(f"  {rule}" for rule in rules)]
    return "\n".join(lines)


def _budget_head(job: Job, convention: str, result: budget.Budget) -> list[str]:
    """What is asked, and what it takes."""
    plan, cap, cost = job.plan, float(decide.mfu_cap(job)), "no price: give --price"
    if result.usd is not None:
        cost = f"{show(result.usd, 'USD')} at {show(result.usd / result.chip_seconds, 'USD/s')} a chip"
    reach = f"MFU cap     {show(cap, '%')} from the data group's traffic alone"
    if cap < result.mfu:
        least = show(result.seconds * result.mfu / cap, "s")
        reach += f"; {show(result.mfu, '%')} is out of reach: at least {least}"
    return [
        f"{job.model.name} on {job.chips} x {job.cluster.chip.title} ({job.cluster.name})",
        f"plan        DP {plan.dp} x TP {plan.tp} x PP {plan.pp} x CP {plan.cp}, ZeRO {plan.zero}, {plan.schedule}, "
        f"{job.microbatches:,.6g} microbatches, sequences of {job.seq_len}",
        f"parameters  {show(n_params(job.model), 'param', 5)} (active {show(n_active_params(job.model), 'param', 5)})",
        f"FLOPs       {show(result.flops, 'FLOP')} ({convention}, {show(job.tokens, 'token')})",
        f"time        {show(result.seconds, 's')} at {show(result.mfu, '%')} MFU",
        f"chip time   {show(result.chip_seconds / HOUR, 'chip-hour')}",
        f"cost        {cost}",
        reach,
    ]


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns of text: figures (a column whose cells begin with a digit or a dash) to the right, words to the left."""
    columns = []
    for title, *cells in zip(header, *rows, strict=True):
        side = ">" if all(cell[:1] in "0123456789–" for cell in cells) else "<"
        width = max(map(len, (title, *cells)))
        columns.append([f"{cell:{side}{width}}" for cell in (title, *cells)])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def run_models(args: argparse.Namespace) -> int:
    """Print the models of the catalogue."""
    models = [library.model(name) for name in catalogue.entries("models")]
    if args.json:
        print(
            json.dumps(
                [{**asdict(m), "params": n_params(m), "active_params": n_active_params(m)} for m in models], indent=2
            )
        )
        return 0
    rows = [
        (
            m.name,
            show(n_params(m), "", 4),
            show(n_active_params(m), "", 4),
            str(m.n_layers),
            str(m.d_model),
            str(m.d_ff),
            f"{m.n_heads}/{m.n_kv_heads}",
            str(m.max_seq_len or "–"),
            show(flops_per_token(m, convention="6N"), "", 4),
            show(flops_per_token(m, m.max_seq_len), "", 4) if m.max_seq_len else "–",
        )
        for m in models
    ]
    shape = ("layers", "d_model", "d_ff", "heads/kv", "longest")
    print(table(("model", "parameters", "active", *shape, "FLOP/token 6N", "causal, longest"), rows))
    return 0


def run_chips(args: argparse.Namespace) -> int:
    """Print the chips of the catalogue."""
    chips = [chip(name) for name in catalogue.entries("chips")]
    if args.json:
        print(json.dumps([{**asdict(c), "peak": dict(c.peak)} for c in chips], indent=2))
        return 0
    rows = [
        (
            c.name,
            show(c.peak["bf16"], "FLOP/s"),
            show(c.peak["fp8"], "FLOP/s") if "fp8" in c.peak else "–",
            show(c.hbm, "B"),
            show(c.hbm_bandwidth, "B/s"),
            show(c.tdp, "W") if c.tdp else "–",
            c.title,
        )
        for c in chips
    ]
    print(table(("chip", "bf16 dense", "fp8 dense", "memory", "bandwidth", "power", "name"), rows))
    return 0


def run_clusters(args: argparse.Namespace) -> int:
    """Print the clusters of the catalogue."""
    clusters = [cluster(name) for name in catalogue.entries("clusters")]
    if args.json:
        print(json.dumps([{**asdict(c), "chip": c.chip.name} for c in clusters], indent=2))
        return 0
    rows = []
    for c in clusters:
        for i, level in enumerate(c.levels):
            rows.append(
                (
                    c.name if i == 0 else "",
                    c.chip.name if i == 0 else "",
                    level.name,
                    level.topology,
                    "x".join(map(str, level.shape)) or str(level.size or "open"),
                    show(level.egress, "B/s"),
                    "axis" if level.shape else "chip",
                )
            )
    print(table(("cluster", "chip", "level", "topology", "chips", "egress", "per"), rows))
    return 0


def run_claims(args: argparse.Namespace) -> int:
    """Print every claim of the article, what it says and what holds."""
    rows = claims.all_claims()
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
        return 0
    print(
        table(
            ("claim", "section", "said", "ours", "verdict"),
            [(r.id, r.section, claims.as_printed(r.said)[:40], _cell(claims.with_unit(r)), r.verdict) for r in rows],
        )
    )
    held = sum(r.verdict == "holds" for r in rows)
    print(f"\n{len(rows)} claims: {held} hold, {len(rows) - held} do not")
    return 0


def _cell(text: str) -> str:
    """The start of a text."""
    return text if len(text) <= 40 else text[:39] + "…"
