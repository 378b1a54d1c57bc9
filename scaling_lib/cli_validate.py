"""`python -m scaling_lib validate`: the predictor confronted with published runs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from scaling_lib.runs import RUNS
from scaling_lib.units import digits, show
from scaling_lib.validate import Group, Report, as_data, validate


def add_parser(subparsers: Any) -> None:
    """Add the command `validate`."""
    parser = subparsers.add_parser("validate", help="predicted against measured step times of published runs")
    parser.add_argument("--runs", metavar="FILE.csv", default=str(RUNS), help="rows with the columns of data/runs.csv")
    parser.add_argument("--json", action="store_true", help="everything, each row included, as JSON")
    parser.set_defaults(run=run)


def _line(group: Group) -> str:
    return (
        f"  {group.name:<22}{group.n:>6}{show(group.median_ape, '%'):>9}{show(group.mean_ape, '%'):>9}"
        f"{show(group.p90_ape, '%'):>9}{100 * group.bias:>+8.1f}%{show(group.coverage, '%'):>9}"
    )


def text(report: Report) -> str:
    """The report as tables."""
    n = sum(s.run.measured is not None for s in report.scored)
    lines = [f"{report.rows} rows, {n} scored, {len(report.skipped)} skipped"]
    reasons: dict[str, int] = {}
    for skip in report.skipped:
        reasons[skip.reason] = reasons.get(skip.reason, 0) + 1
    lines += [f"  skipped {n:>4}: {reason}" for reason, n in sorted(reasons.items(), key=lambda item: -item[1])]
    suspect = sum(s.run.wrong for s in report.scored)
    if suspect:
        lines.append(f"  {suspect} rows are marked suspect in the file and left out of the tables; --json shows them")
    head = f"{'':<24}{'n':>6}{'median':>9}{'mean':>9}{'p90':>9}{'bias':>9}{'in 80%':>9}"
    lines += ["", head]
    if report.overall:
        lines.append(_line(report.overall))
    for kind, groups in report.groups.items():
        lines += [f"by {kind}", *map(_line, groups)]
    if report.ordering:
        o = report.ordering
        lines += [
            "",
            f"layouts of one job: {o.jobs} jobs, {o.pairs} pairs, {show(o.right, '%')} ordered rightly, "
            f"regret {show(o.regret, '%')}",
        ]
    for kind, group in report.memory.items():
        lines.append(
            f"memory, {kind}: {group.n} rows, median {show(group.median_ape, '%')}, p90 {show(group.p90_ape, '%')}, "
            f"bias {digits(100 * group.bias)}%, in range {show(group.coverage, '%')}"
        )
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the report; 0 when at least one row was scored."""
    report = validate(args.runs)
    print(json.dumps(as_data(report), indent=1) if args.json else text(report))
    return 0 if report.scored else 1
