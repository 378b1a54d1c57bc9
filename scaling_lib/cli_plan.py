"""`python -m scaling_lib plan`: the best layouts of a model on a cluster, and why the others are not."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from scaling_lib import library
from scaling_lib.cli import add_job, price, rate, whole
from scaling_lib.predict import fraction, rates
from scaling_lib.units import DAY, show

if TYPE_CHECKING:  # the search needs numpy, which the other commands do without
    from scaling_lib.search import Answer, Layout, Question


def add_parser(subparsers: Any) -> None:
    """Add the command `plan`."""
    about = "search all layouts of a job: ranked by predicted step time, rejections counted by reason"
    sub = subparsers.add_parser("plan", help=about, description=about, epilog="Exit code 1: no layout runs.")
    add_job(sub)
    sub.add_argument("--seq-len", required=True, type=whole, help="tokens a sequence")
    sub.add_argument("--tokens", type=whole, help="tokens of the whole run, e.g. 15e12: gives days")
    sub.add_argument("--price", type=price, help="USD a chip-hour, or the name of a price: gives USD")
    sub.add_argument("--top", type=whole, default=10, help="layouts to print (default 10)")
    sub.add_argument("--overlap", action="store_true", help="also layouts whose traffic overlaps less or more")
    sub.add_argument(
        "--sensitivity", action="store_true", help="also the answer when bandwidth, rate, memory, batch or price moves"
    )
    sub.add_argument(
        "--frontier", action="store_true", help="also fewer and more chips: days against USD; needs --tokens, --price"
    )
    sub.set_defaults(run=run)


def _data(layout: Layout) -> dict[str, Any]:
    plan = layout.plan
    return {
        "chips": int(plan.chips),
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
        "light_ends": bool(plan.light_ends),
        "tp_overlap": layout.stack.tp_overlap,
        "tp_backward_overlap": layout.stack.tp_backward_overlap,
        "dp_overlap": layout.stack.dp_overlap,
        "ep_overlap": layout.stack.ep_overlap,
        "step_time_s": layout.seconds,
        "memory_bytes": layout.memory,
        "mfu_causal": layout.mfu,
        "days": layout.days,
        "usd": layout.usd,
    }


def as_data(answer: Answer) -> dict[str, Any]:
    """The answer as plain data. step_interval_s: 80% interval of the best layout's step; None where nothing runs."""
    from scaling_lib.search import estimate

    best = estimate(answer.question, answer.best[0]) if answer.best else None
    return {
        "evaluated": answer.evaluated,
        "feasible": answer.feasible,
        "rejected": answer.rejected,
        "seconds": answer.elapsed,
        "within_5pct": answer.within,
        "step_interval_s": None if best is None else [best.low, best.high],
        "rate_is_measured": fraction(answer.question.cluster.chip, answer.question.precision, rates())[1],
        "leanest_rejected_bytes": answer.leanest,
        "best": [_data(layout) for layout in answer.best],
    }


def text(answer: Answer) -> str:
    """The answer as a table."""
    rejected = [f"{n:>12,}  {reason}" for reason, n in answer.rejected.items()]
    lines = [f"{answer.evaluated:,} layouts, {answer.feasible:,} run, {answer.within:,} within 5% of the best", ""]
    if answer.best:
        lines += [_head(answer), *(_line(layout, answer) for layout in answer.best), "", _trust(answer), ""]
    return "\n".join([*lines, "rejected, by the first rule broken:", *rejected])


def _trust(answer: Answer) -> str:
    """How far the best step time is to be trusted."""
    from scaling_lib.search import estimate

    q = answer.question
    best = estimate(q, answer.best[0])
    sure = fraction(q.cluster.chip, q.precision, rates())[1]
    guess = (
        "" if sure else f"; no run of {q.cluster.chip.name} in {q.precision} was published: its matmul rate is a guess"
    )
    return f"best: {show(best.low, 's')} to {show(best.high, 's')} in four cases of five{guess}"


def _head(answer: Answer) -> str:
    q = answer.question
    return (
        f"{'dp':>6}{'tp':>4}{'pp':>4}{'cp':>4}{'ep':>4}{'chunks':>7}{'micro':>6}{'zero':>5}  {'recompute':<10}{'sp':<4}"
        f"{'step':>9}{'memory':>10}{'MFU':>7}{'' if q.tokens is None else '         run'}"
        f"{'' if q.price is None or q.tokens is None else '               cost'}"
    )


def _line(layout: Layout, answer: Answer) -> str:
    p, stack, base = layout.plan, layout.stack, answer.question.stack
    run_ = "" if layout.days is None else show(layout.days * DAY, "s")
    cost = "" if layout.usd is None else show(layout.usd, "USD")
    switches = {"tp_overlap": "TP", "tp_backward_overlap": "TP backward", "dp_overlap": "DP", "ep_overlap": "EP"}
    moved = [name for name in switches if getattr(stack, name) != getattr(base, name)]
    notes = ["light ends"] * bool(p.light_ends)
    notes += [f"{switches[name]} {'' if getattr(stack, name) else 'not '}overlapped" for name in moved]
    return (
        f"{int(p.dp):>6}{p.tp:>4}{p.pp:>4}{p.cp:>4}{p.ep:>4}{p.virtual_stages:>7}{p.micro_batch:>6}{p.zero:>5}  "
        f"{p.recompute:<10}{'yes' if p.sequence_parallel else 'no':<4}{show(layout.seconds, 's'):>9}"
        f"{show(layout.memory, 'GiB'):>10}{show(layout.mfu, '%'):>7}"
        f"{run_:>{12 * bool(run_)}}{cost:>{19 * bool(cost)}}  {', '.join(notes)}"
    ).rstrip()


def _degrees(layout: Layout) -> str:
    p = layout.plan
    return (
        f"dp {int(p.dp)} tp {p.tp} pp {p.pp} cp {p.cp} ep {p.ep} chunks {p.virtual_stages} micro-batch {p.micro_batch} "
        f"zero {p.zero} {p.recompute}"
    )


def _moved(answers: dict[str, Answer]) -> str:
    base = answers["as asked"].best[0]
    a_token = base.seconds / answers["as asked"].question.batch_tokens
    lines = ["when one thing moves, best layout then:"]
    for name, answer in answers.items():
        if not answer.best:
            lines.append(f"  {name:<26} nothing runs")
            continue
        best = answer.best[0]
        change = best.seconds / answer.question.batch_tokens / a_token - 1
        cost = "" if best.usd is None else f" {show(best.usd, 'USD')},"
        lines.append(f"  {name:<26}{100 * change:>+7.1f}% time a token,{cost} {_degrees(best)}")
    return "\n".join(lines)


def _sizes(q: Question) -> dict[int, None]:
    """An eighth of the chips asked for up to twice as many, as far as the cluster has them, each once."""
    most = q.cluster.max_chips or math.inf
    sizes = (q.chips // 8, q.chips // 4, q.chips // 2, q.chips, 2 * q.chips)
    return dict.fromkeys(n for n in sizes if 1 <= n <= most)


def _edge(layouts: list[Layout]) -> str:
    lines = ["chips that no other number beats in both days and USD:"]
    for x in layouts:
        run_, cost = show((x.days or 0) * DAY, "s"), show(x.usd or 0, "USD")
        lines.append(f"{int(x.plan.chips):>8,} chips {run_:>12}{cost:>19}  MFU {show(x.mfu, '%')}  {_degrees(x)}")
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the ranked layouts; 0 when one runs, 1 when none does. Raises ValueError for a question without sense."""
    from scaling_lib.search import WIDE, Question, Space, frontier, search, sensitivity, why_nothing

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
    if args.price is not None and args.tokens is None:
        raise ValueError("--price alone buys nothing: give --tokens of the whole run too")
    if args.frontier and (args.tokens is None or args.price is None):
        raise ValueError("--frontier weighs days against USD: give --tokens and --price too")
    space = WIDE if args.overlap else Space()
    answer = search(question, space, top=args.top)
    moved = sensitivity(question, space) if args.sensitivity and answer.best else {}
    edge = frontier(question, _sizes(question), space) if args.frontier else []
    if args.json:
        data = as_data(answer)
        if args.sensitivity:
            data["sensitivity"] = {name: as_data(a) for name, a in moved.items()}
        if args.frontier:
            data["frontier"] = [_data(layout) for layout in edge]
        print(json.dumps(data, indent=1, default=float))
    else:
        print(text(answer) + ("\n\n" + _moved(moved) if moved else "") + ("\n\n" + _edge(edge) if edge else ""))
    if not answer.best:
        print(f"scaling_lib: {why_nothing(answer)}", file=sys.stderr)
    return 0 if answer.best else 1
