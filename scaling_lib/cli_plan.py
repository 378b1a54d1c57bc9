"""`python -m scaling_lib plan`: the best layouts of a model on a cluster, and why the others are not."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from scaling_lib import library
from scaling_lib.cli import price, rate, whole
from scaling_lib.units import show

if TYPE_CHECKING:  # the search needs numpy, which the other commands do without
    from scaling_lib.search import Answer, Layout


def add_parser(subparsers: Any) -> None:
    """Add the command `plan`."""
    about = "search all layouts of a job: ranked by predicted step time, rejections counted by reason"
    sub = subparsers.add_parser("plan", help=about, description=about)
    sub.add_argument("--model", required=True, help="name, config.json, or your own TOML file")
    sub.add_argument("--cluster", required=True, help="name, or your own TOML file")
    sub.add_argument("--chips", required=True, type=whole, help="chips of the run, e.g. 1024")
    sub.add_argument("--batch-tokens", required=True, type=whole, help="tokens a step, e.g. 16777216")
    sub.add_argument("--seq-len", required=True, type=whole, help="tokens a sequence")
    sub.add_argument("--tokens", type=whole, help="tokens of the whole run, e.g. 15e12: gives days")
    sub.add_argument("--price", type=price, help="USD a chip-hour, or the name of a price: gives USD")
    sub.add_argument("--precision", default="bf16", help="bf16 (default), fp8, fp4 where the chip has it")
    sub.add_argument("--top", type=whole, default=10, help="layouts to print (default 10)")
    sub.add_argument("--sensitivity", action="store_true", help="also how the answer moves with bandwidth, rate, batch")
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.set_defaults(run=run)


def _data(layout: Layout) -> dict[str, Any]:
    plan = layout.plan
    return {
        "dp": int(plan.dp),
        "tp": plan.tp,
        "pp": plan.pp,
        "cp": plan.cp,
        "ep": plan.ep,
        "virtual_stages": plan.virtual_stages,
        "micro_batch": plan.micro_batch,
        "recompute": plan.recompute,
        "zero": plan.zero,
        "sequence_parallel": plan.sequence_parallel,
        "schedule": plan.schedule,
        "step_time_s": layout.seconds,
        "memory_bytes": layout.memory,
        "mfu_causal": layout.mfu,
        "days": layout.days,
        "usd": layout.usd,
    }


def as_data(answer: Answer) -> dict[str, Any]:
    """The answer as plain data."""
    return {
        "evaluated": answer.evaluated,
        "feasible": answer.feasible,
        "rejected": answer.rejected,
        "seconds": answer.elapsed,
        "within_5pct": answer.within,
        "best": [_data(layout) for layout in answer.best],
    }


def text(answer: Answer) -> str:
    """The answer as a table."""
    lines = [f"{answer.evaluated:,} layouts, {answer.feasible:,} run, {answer.within:,} within 5% of the best", ""]
    if answer.best:
        lines.append(
            f"{'dp':>6}{'tp':>4}{'pp':>4}{'cp':>4}{'ep':>4}{'chunks':>7}{'micro':>6}{'zero':>5}  "
            f"{'recompute':<10}{'sp':<4}{'step':>9}{'memory':>10}{'MFU':>7}{'run':>12}{'cost':>19}"
        )
    for layout in answer.best:
        p = layout.plan
        run_ = "" if layout.days is None else show(layout.days * 86400, "s")
        cost = "" if layout.usd is None else show(layout.usd, "USD")
        lines.append(
            f"{int(p.dp):>6}{p.tp:>4}{p.pp:>4}{p.cp:>4}{p.ep:>4}{p.virtual_stages:>7}{p.micro_batch:>6}{p.zero:>5}  "
            f"{p.recompute:<10}{'yes' if p.sequence_parallel else 'no':<4}{show(layout.seconds, 's'):>9}"
            f"{show(layout.memory, 'GiB'):>10}{show(layout.mfu, '%'):>7}{run_:>12}{cost:>19}"
        )
    lines += [*([""] if answer.best else []), "rejected, by the first rule broken:"]
    lines += [f"{n:>12,}  {reason}" for reason, n in answer.rejected.items()]
    return "\n".join(lines)


def _moved(answers: dict[str, Answer]) -> str:
    base = answers["as asked"].best[0].seconds / answers["as asked"].question.batch_tokens
    lines = ["", "when one thing moves, best layout then:"]
    for name, answer in answers.items():
        if not answer.best:
            lines.append(f"  {name:<26} nothing runs")
            continue
        p = answer.best[0].plan
        change = answer.best[0].seconds / answer.question.batch_tokens / base - 1
        lines.append(
            f"  {name:<26}{100 * change:>+7.1f}% time a token, dp {int(p.dp)} tp {p.tp} pp {p.pp} cp {p.cp} "
            f"chunks {p.virtual_stages} micro-batch {p.micro_batch} zero {p.zero} {p.recompute}"
        )
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the ranked layouts; 0 when one runs, 1 when none does."""
    from scaling_lib.search import Question, search, sensitivity

    cluster = library.cluster(args.cluster)
    question = Question(
        library.model(args.model),
        cluster,
        args.chips,
        args.batch_tokens,
        args.seq_len,
        args.tokens,
        rate(args.price, cluster.chip),
        args.precision,
    )
    answer = search(question, top=args.top)
    moved = sensitivity(question) if args.sensitivity and answer.best else {}
    if args.json:
        data = as_data(answer)
        if moved:
            data["sensitivity"] = {name: as_data(a) for name, a in moved.items()}
        print(json.dumps(data, indent=1, default=float))
    else:
        print(text(answer) + (_moved(moved) if moved else ""))
    return 0 if answer.best else 1
