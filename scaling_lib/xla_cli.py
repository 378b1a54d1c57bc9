"""Command line of the compiler module: table, run, measure; on one process or on several."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaling_lib import xla_measure, xla_run, xla_table
from scaling_lib.__main__ import Parser
from scaling_lib.cli import whole
from scaling_lib.xla_layers import LAYERS, CompilerError, load_jax, simulate_devices


def parser() -> Parser:
    """The options of `python -m scaling_lib.xla`."""
    top = Parser(prog="python -m scaling_lib.xla", description=__doc__)
    top.add_argument("--devices", type=whole, help="devices to simulate in each process on a CPU (default 16; run: 8)")
    several = top.add_argument_group(
        "several processes",
        "Start the same command once per process. On Slurm or Cloud TPU --distributed alone will do.",
    )
    several.add_argument("--distributed", action="store_true", help="let JAX find the other processes")
    several.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0")
    several.add_argument("--processes", type=whole, help="number of processes")
    several.add_argument("--process", type=int, help="number of this process, from 0")
    commands = top.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table", help="formula, mesh and compiler side by side")
    run = commands.add_parser("run", help="execute the layers on the devices found and compare with one device")
    for sub in (table, run):
        sub.add_argument("--layer", choices=tuple(LAYERS), help="only this layer")
        sub.add_argument("--strategy", help='only this strategy, e.g. "FSDP x TP"')
    measure = commands.add_parser("measure", help="time the devices found, write a catalogue entry")
    measure.add_argument("--name", default="measured", help="name of the chip and the cluster (default measured)")
    measure.add_argument("--out", type=Path, help="TOML file to write (default: print it)")
    measure.add_argument("--bytes", type=whole, nargs="+", default=[2**12, 2**20, 2**26], help="sizes of arrays")
    measure.add_argument("--budget", type=_seconds, default=2.0, help="seconds that steer the largest matmul")
    return top


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time to spend: write a number above 0")
    return value


def start(options: argparse.Namespace) -> Any:
    """JAX on the devices asked for, joined with the other processes where there are any.

    Raises CompilerError for a coordinator without the numbers of processes, or with a process beyond them.
    """
    named = (options.coordinator, options.processes, options.process)
    if options.coordinator and None in named:
        raise CompilerError("--coordinator needs --processes and --process: how many there are, and which this one is")
    if options.coordinator and not 0 <= options.process < options.processes:
        raise CompilerError(
            f"--process {options.process} of {options.processes}: count from 0 to {options.processes - 1}"
        )
    wanted = options.devices or (8 if options.command == "run" else 16)
    jax = load_jax()
    if not (options.coordinator or options.distributed):
        return simulate_devices(wanted) if options.command != "measure" or options.devices else jax
    if options.devices:
        jax.config.update("jax_num_cpu_devices", options.devices)
    jax.distributed.initialize(*named) if options.coordinator else jax.distributed.initialize()
    return jax


def _cases(options: argparse.Namespace, devices: int, processes: int) -> list[xla_table.Case]:
    """The cases asked for that fit the devices and that all processes can share evenly."""
    chosen = [
        c
        for c in xla_table.cases()
        if (options.layer or c.layer) == c.layer and (options.strategy or c.name) == c.name
        if c.devices <= devices and c.devices % processes == 0
    ]
    if not chosen:
        known = ", ".join(dict.fromkeys(f"{c.name} ({c.devices} devices)" for c in xla_table.cases()))
        where = f"{devices} devices" + f" in {processes} processes" * (processes > 1)
        raise CompilerError(f"no such layer and strategy for {where}: use {known}")
    return chosen


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when all went well, 1 when a comparison failed, 2 for a wrong call."""
    options = parser().parse_args(arguments)
    try:
        jax = start(options)
        first = jax.process_index() == 0
        if options.command == "measure":
            _measure(options, first)
            return 0
        cases = _cases(options, jax.device_count(), jax.process_count())
        if options.command == "table":
            for case in cases:
                text = xla_table.compare(case).text()
                print(text + "\n" if first else "", end="")
            return 0
        results = [xla_run.execute(case) for case in cases]
    except CompilerError as error:
        print(error, file=sys.stderr)
        return 2
    if first:
        where = f"{jax.process_count()} processes x {jax.local_device_count()} {jax.devices()[0].platform} devices"
        print(where, *results, sep="\n")
    return 0 if all(r.equal for r in results) else 1


def _measure(options: argparse.Namespace, first: bool) -> None:
    """Measure, print and write. Raises CompilerError for a bad name or folder before the minutes are spent."""
    name, path = xla_measure.entry_name(options.name), options.out
    if path and not path.parent.is_dir():
        raise CompilerError(f"there is no folder {path.parent} for {path.name}: make it first")
    found = xla_measure.measure(options.bytes, options.budget)
    text = xla_measure.toml(found, name)
    if not first:
        return
    print(xla_measure.table(found))
    if path is None:
        print(text, end="")
        return
    path.write_text(text, encoding="utf-8")
    alone = f'one device makes a chip but no cluster, so read it with load("{path}")'
    print(f"written to {path}: {f'use it as --cluster {path}' if found.levels else alone}")
