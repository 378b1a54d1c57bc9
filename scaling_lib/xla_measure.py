"""Measure the devices at hand: a matmul, memory, each collective; and write them as an entry of the catalogue.

The entry is a reader's own alpha: `library.load(path)` takes it, and so does every command with `--cluster path.toml`.
"""

from __future__ import annotations

import datetime
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scaling_lib import collectives
from scaling_lib.xla_layers import CompilerError, load_jax

PRECISIONS = {"bf16": "bfloat16", "fp32": "float32"}
OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p")


@dataclass(frozen=True)
class Timing:
    """Seconds of one operation at one size. size: bytes of the full, gathered array. sent: bytes one device sends."""

    op: str
    level: str
    n: int
    size: float
    sent: float
    seconds: float

    @property
    def egress(self) -> float:
        """Bytes per second that one device sends."""
        return self.sent / self.seconds


@dataclass(frozen=True)
class Measurement:
    """What was found. peak: FLOP/s of one device by precision. hbm: bytes a device may use. levels: (name, devices)."""

    device: str
    devices: int
    peak: dict[str, float]
    hbm: float
    hbm_bandwidth: float
    levels: tuple[tuple[str, int], ...]
    timings: tuple[Timing, ...]

    def egress(self, level: str) -> float:
        """Egress of one device at a level, byte/s: the best that an all-gather reached."""
        return max(t.egress for t in self.timings if (t.level, t.op) == (level, "all_gather"))

    def latency(self, level: str) -> float:
        """Seconds of one step at a level: a message to a neighbour at the smallest size."""
        return min((t.size, t.seconds) for t in self.timings if (t.level, t.op) == (level, "p2p"))[1]


def seconds_of(f: Callable[..., Any], *arguments: Any, repeats: int = 5, least: float = 0.02) -> float:
    """Median seconds of a call, run until each sample lasts long enough to be timed; the first call is left out."""
    jax = load_jax()
    jax.block_until_ready(f(*arguments))
    start = time.perf_counter()
    jax.block_until_ready(f(*arguments))
    inner = max(1, min(100, math.ceil(least / max(time.perf_counter() - start, 1e-9))))
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(inner):
            result = f(*arguments)
        jax.block_until_ready(result)
        samples.append((time.perf_counter() - start) / inner)
    return statistics.median(samples)


def matmul_rate(precision: str, budget: float = 2.0) -> float:
    """Best FLOP/s of a square matmul on one device; its side doubles until a call takes a tenth of the budget."""
    jax, best, side = load_jax(), 0.0, 256
    dtype = getattr(jax.numpy, PRECISIONS[precision])
    multiply = jax.jit(lambda a, b: a @ b)
    while True:
        a = jax.device_put(jax.numpy.ones((side, side), dtype), jax.local_devices()[0])
        seconds = seconds_of(multiply, a, a)
        best = max(best, 2 * side**3 / seconds)
        if seconds > budget / 10 or side >= 16384:
            return best
        side *= 2


def memory_rate(size: float) -> float:
    """Bytes per second of device memory, reads and writes together: one pass that adds a number to an array."""
    jax = load_jax()
    a = jax.device_put(jax.numpy.ones(int(size) // 4, jax.numpy.float32), jax.local_devices()[0])
    return 2 * 4 * float(a.size) / seconds_of(jax.jit(lambda x: x + 1), a)


def memory_size() -> float:
    """Bytes that one device may use: what its allocator says, or the host's memory shared by its simulated devices."""
    import os

    jax = load_jax()
    statistics_ = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in statistics_:
        return float(statistics_["bytes_limit"])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / jax.local_device_count())


def collective(op: str, axis: str, n: int) -> Callable[[Any], Any]:
    """One collective along an axis of n devices, as the body of a shard_map over flat arrays."""
    lax = load_jax().lax
    bodies: dict[str, Callable[[Any], Any]] = {
        "all_gather": lambda x: lax.all_gather(x, axis, axis=0, tiled=True),
        "reduce_scatter": lambda x: lax.psum_scatter(x, axis, scatter_dimension=0, tiled=True),
        "all_reduce": lambda x: lax.psum(x, axis),
        "all_to_all": lambda x: lax.all_to_all(x, axis, 0, 0, tiled=True),
        "p2p": lambda x: lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)]),
    }
    return bodies[op]


def time_collective(op: str, level: str, mesh: Any, axis: str, size: float) -> Timing:
    """Time one collective along an axis of a mesh; all other axes run the same beside it.

    size: about the bytes of the full array, the gathered one, or for p2p of what one device sends.
    """
    jax = load_jax()
    P, n, others = jax.sharding.PartitionSpec, mesh.shape[axis], tuple(a for a in mesh.axis_names if a != axis)
    # one device holds V/n of an array to gather or to exchange, V of one to reduce or to send
    held = size / n if op in ("all_gather", "all_to_all") else size
    rows = max(n, int(held) // 4 // n * n)
    cut = P((*others, axis))
    f = jax.shard_map(collective(op, axis, n), mesh=mesh, in_specs=cut, out_specs=cut, check_vma=False)
    place = jax.sharding.NamedSharding(mesh, cut)
    x = jax.jit(lambda: jax.numpy.ones(rows * mesh.size, jax.numpy.float32), out_shardings=place)()
    full = 4.0 * rows * (n if op in ("all_gather", "all_to_all") else 1)
    return Timing(op, level, n, full, float(collectives.sent_bytes(op, full, n)), seconds_of(jax.jit(f), x))


def measure(sizes: Sequence[float] = (4096.0, 2.0**20, 2.0**26), budget: float = 2.0) -> Measurement:
    """Measure every device that JAX sees, on all processes at once.

    sizes: bytes of the arrays of collectives; the largest of them also times memory. budget: seconds that steer the
    size of the largest matmul. Levels: devices of one process, and processes.
    """
    jax = load_jax()
    processes, inside = jax.process_count(), jax.local_device_count()
    if jax.device_count() != processes * inside:
        raise CompilerError(f"{jax.device_count()} devices on {processes} processes are not equally many each")
    levels = [("process", inside, "Y")] * (inside > 1) + [("network", processes, "X")] * (processes > 1)
    mesh = jax.make_mesh((processes, inside), ("X", "Y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    timings = [time_collective(op, name, mesh, axis, size) for name, _, axis in levels for op in OPS for size in sizes]
    return Measurement(
        str(jax.devices()[0].device_kind),
        jax.device_count(),
        {p: matmul_rate(p, budget) for p in PRECISIONS},
        memory_size(),
        memory_rate(max(sizes)),
        tuple((name, n) for name, n, _ in levels),
        tuple(timings),
    )


def table(found: Measurement) -> str:
    """The timings as text: operation, devices, bytes, seconds, and the egress they mean."""
    from scaling_lib.units import show

    lines = [f"{found.devices} x {found.device}"]
    lines += [f"  matmul {p:<6}{show(rate, 'FLOP/s'):>16}" for p, rate in found.peak.items()]
    lines.append(f"  memory {'':<6}{show(found.hbm_bandwidth, 'B/s'):>16}")
    for t in found.timings:
        columns = f"{show(t.size, 'B'):>10}{show(t.seconds, 's'):>12}{show(t.egress, 'B/s'):>14}"
        lines.append(f"  {t.level:<8} {t.op:<15}{t.n:>4}{columns}")
    return "\n".join(lines)


def entry_name(name: str) -> str:
    """The name, when it can be a bare TOML key. Raises CompilerError otherwise."""
    if not name or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
        raise CompilerError(f"{name!r} is no name for an entry: use letters, digits, - and _")
    return name


def toml(found: Measurement, name: str) -> str:
    """A catalogue file with one chip, and one cluster when more than one device was found.

    name: a bare TOML key. Raises CompilerError for another.
    """
    name = entry_name(name)
    date = datetime.date.today().isoformat()
    devices = f"{found.devices} x {found.device} on {platform.machine()}"
    source = f"python -m scaling_lib.xla measure, {devices}, JAX {load_jax().__version__}"

    def figure(value: float, unit: str, extra: str = "") -> str:
        said = f'value = "{value:.4g} {unit}", {extra}source = "{source}", date = "{date}", kind = "measured"'
        return "{ " + said + " }"

    lines = [
        "# Measured, not from a data sheet: the peak is what a large matmul reached, so an MFU against it reads high.",
        f"[chips.{name}]",
        f'name = "{found.device}, measured"',
        f"hbm = {figure(found.hbm, 'B')}",
        f"hbm_bandwidth = {figure(found.hbm_bandwidth, 'B/s', _said('direction', 'read+write'))}",
        f"[chips.{name}.peak]",
        *(f"{p} = {figure(rate, 'FLOP/s', 'dense = true, ')}" for p, rate in found.peak.items()),
    ]
    return "\n".join([*lines, *_cluster(found, name, figure)]) + "\n"


def _cluster(found: Measurement, name: str, figure: Callable[..., str]) -> list[str]:
    """The lines of the cluster, innermost level first; none for a device alone."""
    if not found.levels:
        return []
    lines = ["", f"[clusters.{name}]", f'name = "{found.devices} x {found.device}, measured"', f'chip = "{name}"']
    lines.append(f"max_chips = {found.devices}")
    size = 1
    for level, n in found.levels:
        size *= n
        egress = figure(found.egress(level), "B/s", _said("direction", "egress") + _said("per", "chip"))
        lines += [
            f"[[clusters.{name}.levels]]",
            f'name = "{level}"',
            'topology = "switch"',
            f"size = {size}",
            f"egress = {egress}",
            f"latency = {figure(found.latency(level), 's')}",
            "in_network_reduction = false",
        ]
    return lines


def _said(key: str, value: str) -> str:
    return f'{key} = "{value}", '
