"""What a compiler really emits: collectives read from compiled JAX programs, beside the formulas and the mesh.

`python -m scaling_lib.xla table` prints formula | mesh | compiler for every strategy, `run` executes the layers on the
devices it finds, `measure` times these devices and writes them as an entry of the catalogue.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from scaling_lib import collectives
from scaling_lib.xla_layers import CompilerError

OPS = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}
ELEMENT_BYTES = {
    **dict.fromkeys(("pred", "s8", "u8", "f8e4m3fn", "f8e5m2"), 1),
    **dict.fromkeys(("bf16", "f16", "s16", "u16"), 2),
    **dict.fromkeys(("f32", "s32", "u32"), 4),
    **dict.fromkeys(("f64", "s64", "u64", "c64"), 8),
}
_LINE = re.compile(r"= (?P<type>.*?) (?P<op>" + "|".join(OPS) + r")(?P<start>-start)?\((?P<rest>.*)$", re.MULTILINE)
_MESH_GROUPS = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))?\s*\{((?:'\w+',?\s*)*)\}"
)
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")


@dataclass(frozen=True)
class Collective:
    """One collective of a compiled program.

    size: bytes of the full, gathered array over one group; of what a device sends for a permute. groups: devices that
    take part together, by number; pairs for a permute. source: the JAX operation it came from.
    """

    op: str
    size: float
    groups: tuple[tuple[int, ...], ...]
    dtype: str
    source: str

    @property
    def sent(self) -> float:
        """Bytes that one device sends in a bandwidth-optimal algorithm."""
        if self.op == "permute":
            return self.size
        return float(collectives.sent_bytes(self.op, self.size, len(self.groups[0])))


def read(text: str) -> list[Collective]:
    """The collectives of a compiled program's text (`compiled.as_text()`), in order; groups of one device are left out.

    One inside a loop appears once, however often the loop runs. Raises CompilerError for groups it cannot read.
    """
    header = re.search(r"num_partitions=(\d+)", text)
    devices = int(header[1]) if header else 1
    found = []
    for match in _LINE.finditer(text):
        op, rest = OPS[match["op"]], match["rest"]
        groups = _pairs(rest) if op == "permute" else _groups(rest, devices)
        dtype, held = _held(match["type"], op, bool(match["start"]))
        source = re.search(r'op_name="([^"]*)"', rest)
        n = len(groups[0]) if groups else 1
        full = held * n if op in ("reduce_scatter", "all_to_all") else held
        if n > 1:
            found.append(Collective(op, float(full), groups, dtype, source[1] if source else ""))
    return found


def _held(text: str, op: str, started: bool) -> tuple[str, int]:
    """Type and bytes of the result on one device; an asynchronous gather or permute also lists its operand."""
    arrays = _ARRAY.findall(text)
    if started and op == "permute":
        arrays = arrays[1:2]
    elif started and op in ("all_gather", "reduce_scatter", "all_to_all") and len(arrays) > 1:
        arrays = arrays[len(arrays) // 2 :]
    unknown = [dtype for dtype, _ in arrays if dtype not in ELEMENT_BYTES]
    if unknown or not arrays:
        raise CompilerError(f"cannot read the type {text!r}: add {unknown or 'it'} to ELEMENT_BYTES")
    return arrays[0][0], sum(
        ELEMENT_BYTES[dtype] * math.prod(int(n) for n in shape.split(",") if n) for dtype, shape in arrays
    )


def _pairs(rest: str) -> tuple[tuple[int, ...], ...]:
    match = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", rest)
    if match is None:
        raise CompilerError(f"cannot read who sends to whom in {rest[:80]!r}: unknown form of source_target_pairs")
    pairs = re.findall(r"\{(\d+),(\d+)\}", match[1])
    return tuple((int(a), int(b)) for a, b in pairs if a != b)


def _groups(rest: str, devices: int) -> tuple[tuple[int, ...], ...]:
    """Groups in the three forms of HLO: a list, a reshaped range, axes of a mesh."""
    if match := re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", rest):
        listed = re.findall(r"\{([\d,]+)\}", match[1])
        return tuple(tuple(int(i) for i in g.split(",")) for g in listed) or (tuple(range(devices)),)
    if match := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest):
        shape = _numbers(match[3])
        flat = _transposed(shape, _numbers(match[4]) or list(range(len(shape))))
        width = int(match[2])
        return tuple(tuple(flat[i : i + width]) for i in range(0, len(flat), width))
    if match := re.search(_MESH_GROUPS, rest):
        axes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", match[1])}
        names, used = list(axes), re.findall(r"'(\w+)'", match[4])
        order = [names.index(a) for a in names if a not in used] + [names.index(a) for a in used]
        device = list(range(math.prod(axes.values())))
        if match[2]:
            device = _transposed(_numbers(match[2]), _numbers(match[3]) or list(range(match[2].count(",") + 1)))
        flat, width = _transposed(list(axes.values()), order), math.prod(axes[a] for a in used)
        return tuple(tuple(device[r] for r in flat[i : i + width]) for i in range(0, len(flat), width))
    form = re.search(r"replica_groups=.{0,80}", rest)
    raise CompilerError(f"cannot read {form[0] if form else rest[:80]!r}: unknown form of replica_groups")


def _numbers(text: str | None) -> list[int]:
    return [int(n) for n in text.split(",")] if text else []


def _transposed(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """The numbers 0, 1, … of an array of this shape, read with its axes in another order."""
    flat = [0]
    for axis in order:
        stride = math.prod(shape[axis + 1 :])
        flat = [base + stride * i for base in flat for i in range(shape[axis])]
    return flat


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see `python -m scaling_lib.xla --help`."""
    from scaling_lib.xla_cli import run

    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
