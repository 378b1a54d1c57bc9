"""Jobs: a model, a cluster, a parallel plan and a batch. What a job must obey stands in `rules`.

Ranks are laid out with TP innermost, then CP, then DP (EP inside it), PP outermost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from scaling_lib.catalogue import CatalogueError, near
from scaling_lib.hardware import Cluster
from scaling_lib.model import TransformerConfig
from scaling_lib.precision import BYTES, RECIPES, Recipe

RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("flash", "unfused")
SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "interleaved-zb",
    "dualpipe",
    "dualpipev",
)
LAYER_FORMS = ("two-matmul", "gated", "full")


@dataclass(frozen=True)
class ParallelPlan:
    """How a job is cut. Degrees are whole numbers, or arrays of one shape for a grid of plans.

    dp: data-parallel replicas, the group that ZeRO shards over (with cp). zero: stage 0 to 3; 3 is FSDP.
    virtual_stages: model chunks a device (interleaving). micro_batch: sequences a microbatch.
    attention: "flash" keeps no scores, "unfused" writes them to memory, with dropout masks, as GPT-3 era code did;
    a prediction of step time goes by the kernel of its stack instead.
    checkpoints_per_layer: layer inputs kept when recompute is "full"; 0.5 keeps one for two layers.
    prefetch: layers gathered ahead under ZeRO 3. light_ends: the first and the last chunk of a pipeline hold one layer
    less, in exchange for the embedding and the head, as Llama 3 405B was cut.
    dp_axes, tp_axes: torus axes that the data and tensor groups use; None takes the rule of `torus_axes`.
    """

    dp: Any = 1
    tp: Any = 1
    pp: Any = 1
    cp: Any = 1
    ep: Any = 1
    zero: int = 3
    virtual_stages: Any = 1
    micro_batch: Any = 1
    schedule: str = "1f1b"
    recompute: str = "none"
    attention: str = "flash"
    checkpoints_per_layer: Any = 1
    prefetch: Any = 1
    sequence_parallel: Any = True
    reshard_after_forward: bool = True
    dp_axes: int | None = None
    tp_axes: int | None = None
    light_ends: Any = False

    @property
    def chips(self) -> Any:
        """Chips the plan uses: dp x tp x pp x cp (experts live inside dp x cp)."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def shard_group(self) -> Any:
        """Ranks that hold the same layer and TP slice: dp x cp, the group that reduces gradients."""
        return self.dp * self.cp


@dataclass(frozen=True)
class Job:
    """A training job. batch_tokens: tokens a step. seq_len: tokens. tokens: of the whole run, where wanted.

    layer: the layer form of the rooflines, "two-matmul" (In, Win, Wout), "gated" (three matrices)
    or "full" (MLP and attention).
    """

    model: TransformerConfig
    cluster: Cluster
    plan: ParallelPlan
    chips: Any
    batch_tokens: Any
    seq_len: Any
    tokens: Any = None
    precision: str = "bf16"
    recipe: Recipe = RECIPES["bf16"]
    layer: str = "two-matmul"

    @property
    def peak(self) -> float:
        """Dense peak of one chip at the job's precision, FLOP/s (C)."""
        return self.cluster.chip.flops(self.precision)

    @property
    def element_bytes(self) -> float:
        """Bytes of an element on the wire: fp8 and fp4 multiply in fewer bits but communicate in 16.

        Raises CatalogueError for a precision whose width is not known.
        """
        if self.precision not in BYTES:
            raise CatalogueError(f"unknown precision {self.precision!r}: {near(self.precision, BYTES)}")
        return max(2, BYTES[self.precision])

    @property
    def tokens_per_chip(self) -> Any:
        """Tokens a step over all chips (B/N)."""
        return self.batch_tokens / self.chips

    @property
    def tokens_per_rank(self) -> Any:
        """Tokens a step that pass through one data-parallel rank: B / (dp cp), B/X in the rooflines."""
        return self.batch_tokens / self.plan.shard_group

    @property
    def microbatches(self) -> Any:
        """Microbatches a step in each replica (m), whole when the batch divides."""
        return self.batch_tokens / (self.seq_len * self.plan.micro_batch * self.plan.dp)

    @property
    def torus_axes(self) -> tuple[int | None, int | None]:
        """Torus axes of the data and the tensor group: as the plan says, else one axis for TP and the rest for data."""
        shape = self.cluster.levels[0].shape
        if not shape:
            return None, None
        alone = isinstance(self.plan.tp, int) and self.plan.tp == 1
        tp_axes = 1 if self.plan.tp_axes is None else self.plan.tp_axes
        rest = len(shape) if alone else max(1, len(shape) - tp_axes)
        return rest if self.plan.dp_axes is None else self.plan.dp_axes, tp_axes


def divisors(n: int) -> list[int]:
    """All divisors of a whole number of at least 1, ascending."""
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def with_plan(job: Job, **changes: Any) -> Job:
    """The job with some fields of its plan changed, e.g. `with_plan(job, tp=4)`."""
    return replace(job, plan=replace(job.plan, **changes))
