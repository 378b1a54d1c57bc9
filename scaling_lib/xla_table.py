"""Three witnesses side by side: bytes by formula, counted on the mesh, and read from the compiled program."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

from scaling_lib import (
    collectives,
    cp,
    crosspod,
    dp,
    ep,
    fsdp,
    hybrid,
    mesh_block,
    mesh_layers,
    pp,
    roofline,
    tp,
    xla,
    xla_exchanges,
)
from scaling_lib.hardware import cluster
from scaling_lib.job import Job, ParallelPlan, with_plan
from scaling_lib.ledger import Ledger, Part
from scaling_lib.mesh_layers import STRATEGIES, Strategy
from scaling_lib.model import MoE, TransformerConfig
from scaling_lib.precision import BYTES, recipe
from scaling_lib.xla_layers import AUTOMATIC, LAYERS, MANUAL, CompilerError, load_jax, training_pass

# Small enough to compile in seconds, divisible by every mesh below.
MODEL = TransformerConfig("small", 1, 16, 32, 8, 4, 4, 64, gated=True, tied_embeddings=False)
SEQUENCES, SEQ_LEN = 16, 8
N_EXPERTS, D_FF_EXPERT = 8, 8
N_STAGES, N_MICROBATCHES = 4, 4


@dataclass(frozen=True)
class Case:
    """A layer under a strategy on a mesh, the plan that says the same, and its ledgers.

    written, automatic: why the compiler's bytes differ from the mesh when collectives are written out, and when they
    are left to it; "" where they do not. Elements are fp32 throughout: a compiler for CPUs widens 16-bit sums to 32
    bits, which would hide an equality.
    """

    layer: str
    name: str
    strategy: Strategy
    shape: tuple[int, ...]
    axes: str
    plan: ParallelPlan
    ledgers: tuple[Callable[[Job], Ledger], ...]
    written: str = ""
    automatic: str = ""

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        return math.prod(self.shape)

    @property
    def job(self) -> Job:
        """The job whose formulas the case must equal."""
        tokens, form = SEQUENCES * SEQ_LEN, "two-matmul" if self.layer == "two-matmul" else "full"
        h100 = cluster("dgx-h100")
        model = replace(MODEL, n_layers=N_STAGES) if self.layer == "stages" else MODEL
        if self.layer == "experts":
            model = replace(MODEL, moe=MoE(N_EXPERTS, xla_exchanges.EXPERTS_PER_TOKEN, D_FF_EXPERT))
        return Job(model, h100, self.plan, self.plan.chips, tokens, SEQ_LEN, None, "fp32", recipe("fp32"), form)


def _inside_pods(job: Job) -> Ledger:
    """Gradients scattered and gathered inside each pod, so that only `crosspod.wire_bytes` crosses."""
    size, n = roofline.gradient_bytes(job), crosspod.pod_chips(job)
    ops = ("reduce_scatter", "all_gather")
    parts = tuple(Part(f"backward/{op} gradients", collectives.sent_bytes(op, size, n)) for op in ops)
    return Ledger("Bytes sent by one chip inside its pod", "B", parts)


def _fsdp_in_pods(job: Job) -> Ledger:
    """FSDP over the chips of one pod, which hold all the weights together."""
    return fsdp.wire_bytes(with_plan(job, dp=crosspod.pod_chips(job)))


def _all_places(job: Job) -> Ledger:
    """Experts that keep a place for every token of a sender."""
    return ep.wire_bytes(job, factor=N_EXPERTS / xla_exchanges.EXPERTS_PER_TOKEN)


def _sends(job: Job) -> Ledger:
    """A pipeline's ledger under the name of the operation that sends."""
    sent = pp.wire_bytes(job)
    return Ledger(sent.title, "B", tuple(Part(p.name.replace("/", "/permute "), p.value) for p in sent.parts))


_SLICED = "no reduce-scatter on a CPU: it all-reduces and keeps a slice, twice the bytes"
_KEPT = f"weights are kept from the forward pass; {_SLICED}"
_OWN_PLAN = "given the cuts of inputs and outputs alone, it finds another plan: "


def cases() -> tuple[Case, ...]:
    """Every strategy, the two-matmul layer first. The last two of them need 16 devices, the others 8 or fewer."""
    plan, two = ParallelPlan, "two-matmul"
    return (
        Case(two, "DP", STRATEGIES["DP"], (8,), "X", plan(dp=8), (dp.wire_bytes,)),
        Case(two, "FSDP", STRATEGIES["FSDP"], (8,), "X", plan(dp=8), (fsdp.wire_bytes,), automatic=_KEPT),
        Case(two, "TP", STRATEGIES["TP"], (8,), "Y", plan(tp=8), (tp.wire_bytes,), automatic=_SLICED),
        Case(two, "FSDP x TP", STRATEGIES["FSDP x TP"], (4, 2), "XY", plan(dp=4, tp=2), (hybrid.wire_bytes,),
             automatic=f"weights are kept, activations are gathered twice more; {_SLICED}"),
        Case("block", "DP", STRATEGIES["DP"], (8,), "X", plan(dp=8), (dp.wire_bytes,)),
        Case("block", "FSDP", STRATEGIES["FSDP"], (8,), "X", plan(dp=8), (fsdp.wire_bytes,), automatic=_KEPT),
        Case("block", "TP", STRATEGIES["TP"], (4,), "Y", plan(tp=4), (tp.wire_bytes,),
             automatic=_OWN_PLAN + "activations stay cut by position, weights, keys and values are gathered"),
        Case("block", "FSDP x TP", STRATEGIES["FSDP x TP"], (4, 2), "XY", plan(dp=4, tp=2), (hybrid.wire_bytes,),
             automatic=_OWN_PLAN + "activations stay cut by position, weights, keys and values are gathered"),
        Case("block", "CP", Strategy(context="C"), (4,), "C", plan(cp=4), (dp.wire_bytes, cp.wire_bytes),
             written="passing keys and values are kept, their gradients go back as those came: 2(n-1) moves for 3n-2",
             automatic=_OWN_PLAN + "no ring, keys and values are gathered whole and their gradients all-reduced"),
        Case("experts", "EP", Strategy(data="X"), (4,), "X", plan(dp=4, ep=4), (_all_places,),
             automatic=_OWN_PLAN + "tokens stay, the weights of all experts are gathered, their gradients all-reduced"),
        Case("stages", "PP", Strategy(data="P"), (N_STAGES,), "P", plan(pp=N_STAGES), (_sends,),
             automatic="a shift of all stages at once: each sends at every tick, idle or not, m + p - 2 times for m"),
        Case(two, "cross-pod DP", STRATEGIES["cross-pod DP"], (2, 8), "ZX", plan(dp=16),
             (_inside_pods, crosspod.wire_bytes),
             written="one all-reduce over both axes, as many bytes; going pod by pod is left to the runtime below",
             automatic="one all-reduce over both axes, as many bytes; going pod by pod is left to the runtime below"),
        Case(two, "FSDP in pods", STRATEGIES["FSDP in pods"], (2, 8), "ZX", plan(dp=16),
             (_fsdp_in_pods, crosspod.wire_bytes), automatic=_KEPT),
    )  # fmt: skip


def find(layer: str, name: str) -> Case:
    """A case by layer and strategy. Raises CompilerError that lists them."""
    for case in cases():
        if (case.layer, case.name) == (layer, name):
            return case
    known = ", ".join(f"{c.layer} {c.name}" for c in cases())
    raise CompilerError(f"no case {layer!r} {name!r}: use one of {known}")


def formula(case: Case) -> dict[str, float]:
    """Bytes by operation from the ledgers, and for a block from the two norm gains that they leave out."""
    job, total = case.job, dict[str, float]()
    for ledger in case.ledgers:
        for part in ledger(job):
            op = part.name.partition("/")[2].split()[0]
            total[op] = total.get(op, 0.0) + float(part.value)
    for op, value in _norms(case) if case.layer == "block" else ():
        total[op] = total.get(op, 0.0) + value
    return {op: value for op, value in total.items() if value}


def _norms(case: Case) -> list[tuple[str, float]]:
    """Two gains of D elements: gathered, again, and scattered over the FSDP axis; summed over all other axes."""
    gains = 2 * MODEL.d_model * BYTES["fp32"]
    degree = dict(zip(case.axes, case.shape, strict=True))
    n = degree[case.strategy.shard] if case.strategy.shard else 1
    others = 1
    for axis in set(case.axes) - set(case.strategy.shard):
        others *= degree[axis]
    rows = [("all_gather", 2.0), ("reduce_scatter", 1.0)]
    return [(op, times * collectives.sent_bytes(op, gains, n)) for op, times in rows] + [
        ("all_reduce", collectives.sent_bytes("all_reduce", gains / n, others))
    ]


def counted(case: Case) -> dict[str, float]:
    """Bytes by operation, counted on the virtual mesh."""
    import numpy as np

    from scaling_lib.mesh import Mesh

    mesh, layout = Mesh(case.shape, case.axes, dtype="fp32"), case.strategy.layout
    rng = np.random.default_rng(0)
    if case.layer in ("experts", "stages"):
        _exchange(case, mesh, [0.3 * rng.normal(size=shape) for shape in shapes_of(case)])
    elif case.layer == "two-matmul":
        x = mesh.shard(rng.normal(size=(SEQUENCES * SEQ_LEN, MODEL.d_model)), layout(mesh_layers.X_LAYOUT))
        w_in = mesh.shard(rng.normal(size=(MODEL.d_model, MODEL.d_ff)), layout(mesh_layers.IN_LAYOUT))
        w_out = mesh.shard(rng.normal(size=(MODEL.d_ff, MODEL.d_model)), layout(mesh_layers.OUT_LAYOUT))
        mesh_layers.two_matmul(case.strategy, x, w_in, w_out, x)
    else:
        weights = {key: rng.normal(size=shape) for key, shape in _block_shapes().items()}
        x = mesh.shard(rng.normal(size=(SEQUENCES, SEQ_LEN, MODEL.d_model)), layout(mesh_block.ACTIVATIONS))
        mesh_block.block(case.strategy, x, mesh_block.place(mesh, case.strategy, weights), x)
    return {op: mesh.sent(op=op) for op in dict.fromkeys(t.op for t in mesh.log)}


def _exchange(case: Case, mesh: Any, arrays: list[Any]) -> None:
    """A training pass of the experts, or of the stages, on the mesh."""
    from scaling_lib.mesh_moe import moe
    from scaling_lib.mesh_pipeline import pipeline

    tokens, _, *weights = arrays
    layouts = [case.strategy.layout(text) for text in LAYERS[case.layer][2]]
    placed = [mesh.shard(w, layout) for w, layout in zip(weights, layouts, strict=True)]
    if case.layer == "stages":
        pipeline(case.axes, placed[0], placed[1], list(tokens[0]), list(tokens[0]))
        return
    x = mesh.shard(tokens, case.strategy.layout(xla_exchanges.TOKENS))
    named = dict(zip(("router", "w_gate", "w_up", "w_down"), placed, strict=True))
    moe(x, named, x, xla_exchanges.EXPERTS_PER_TOKEN, x.parts[0].shape[0])


def compiled(case: Case, mode: str, separate_passes: bool = True) -> list[xla.Collective]:
    """The collectives that the compiler emits for a case.

    separate_passes: switch off the pass by which XLA on a CPU drops the barrier between forward and backward; it would
    then merge both gathers of a weight and keep it, which is what FSDP sets out to avoid.
    """
    jax = load_jax()
    step, _ = training_pass(case.layer, case.strategy, case.shape, case.axes, mode)
    arguments = [jax.ShapeDtypeStruct(shape, jax.numpy.float32) for shape in shapes_of(case)]
    on_cpu = jax.devices()[0].platform == "cpu"
    options = {"xla_disable_hlo_passes": "cse_barrier_expander"} if separate_passes and on_cpu else {}
    return xla.read(step.lower(*arguments).compile(compiler_options=options).as_text())


def shapes_of(case: Case) -> list[tuple[int, ...]]:
    """Shapes of a training pass: input, output gradient, weights."""
    tokens, d, f = SEQUENCES * SEQ_LEN, MODEL.d_model, MODEL.d_ff
    if case.layer == "two-matmul":
        return [(tokens, d), (tokens, d), (d, f), (f, d)]
    if case.layer == "experts":
        e, f = N_EXPERTS, D_FF_EXPERT
        return [(tokens, d), (tokens, d), (d, e), (e, d, f), (e, d, f), (e, f, d)]
    if case.layer == "stages":
        n, m = N_STAGES, N_MICROBATCHES
        return [(n, m, tokens // m, d)] * 2 + [(n, d, f), (n, f, d)]
    return [(SEQUENCES, SEQ_LEN, d)] * 2 + list(_block_shapes().values())


def by_operation(found: list[xla.Collective]) -> dict[str, float]:
    """Bytes that the busiest device sends, by operation."""
    sent: dict[str, dict[int, float]] = {}
    for c in found:
        for group in c.groups:
            for device in group[:1] if c.op == "permute" else group:
                by_device = sent.setdefault(c.op, {})
                by_device[device] = by_device.get(device, 0.0) + c.sent
    return {op: max(by_device.values()) for op, by_device in sent.items()}


def _block_shapes() -> dict[str, tuple[int, ...]]:
    m = MODEL
    return mesh_block.shapes(m.d_model, m.n_heads, m.n_kv_heads, m.head_dim, m.d_ff)


@dataclass(frozen=True)
class Comparison:
    """Bytes sent by one device in one training pass, by operation: four columns of one case."""

    case: Case
    formula: dict[str, float]
    mesh: dict[str, float]
    written: dict[str, float]
    automatic: dict[str, float]

    @property
    def rows(self) -> list[tuple[str, float, float, float, float]]:
        """(operation, formula, mesh, written out, automatic), and their totals last."""
        columns = (self.formula, self.mesh, self.written, self.automatic)
        ops = [op for op in xla.OPS.values() if any(op in c for c in columns)]
        totals = [sum(c.values()) for c in columns]
        rows = [(op, [c.get(op, 0.0) for c in columns]) for op in ops]
        return [(op, a, b, c, d) for op, (a, b, c, d) in [*rows, ("total", totals)]]

    @property
    def notes(self) -> list[str]:
        """What differs and why; empty when all four agree."""
        sides = (("written out", self.written, self.case.written), ("automatic", self.automatic, self.case.automatic))
        return [f"{side}: {why or 'differs'}" for side, found, why in sides if found != self.mesh]

    def text(self) -> str:
        """A table with its notes."""
        shape = " x ".join(f"{a} {n}" for a, n in zip(self.case.axes, self.case.shape, strict=True))
        lines = [f"{self.case.layer}, {self.case.name} on {shape}: bytes sent by one device"]
        lines.append(f"  {'':<15}{'formula':>10}{'mesh':>10}{'written':>10}{'automatic':>11}")
        lines += [f"  {op:<15}{a:>10,.0f}{b:>10,.0f}{c:>10,.0f}{d:>11,.0f}" for op, a, b, c, d in self.rows]
        return "\n".join([*lines, *(fill(n, 68, initial_indent="  ", subsequent_indent="    ") for n in self.notes)])


def compare(case: Case) -> Comparison:
    """All four columns of a case: computed, counted, and compiled twice."""
    written = by_operation(compiled(case, MANUAL))
    automatic = by_operation(compiled(case, AUTOMATIC, separate_passes=False))
    return Comparison(case, formula(case), counted(case), written, automatic)
