"""Published runs: rows of a table of measurements, read as jobs on stacks.

A row that cannot be read is skipped with a reason; a field that the source did not print is named, because it widens
the interval of the prediction. Columns: see data/runs.csv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from scaling_lib import catalogue
from scaling_lib.catalogue import DATA, CatalogueError, near
from scaling_lib.hardware import Cluster
from scaling_lib.hardware import cluster as cluster_named
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.model import MLA, MoE, TransformerConfig
from scaling_lib.precision import RECIPES
from scaling_lib.predict import KERNELS, RECOMPUTE_KINDS, STACKS, Stack

RUNS = DATA / "runs.csv"
# name of a chip as tables print it, folded, to the cluster it is usually built into
CLUSTERS = {
    "a100": "dgx-a100",
    "a10080gb": "dgx-a100",
    "a10040gb": "dgx-a100-40gb",
    "h100": "dgx-h100",
    "h200": "dgx-h200",
    "h800": "h800-ib",
    "b200": "dgx-b200",
    "b300": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "mi300x": "mi300x-8",
    "mi355x": "mi355x-8",
    "tpuv4": "tpu-v4",
    "tpuv5e": "tpu-v5e",
    "tpuv5p": "tpu-v5p",
    "tpuv6e": "tpu-v6e",
    "tpuv7": "tpu-v7",
    "trn2": "trn2-ultra",
    "trainium2": "trn2-ultra",
}


class RowError(ValueError):
    """A row that cannot be predicted; the message is the reason."""


@dataclass(frozen=True)
class Run:
    """A measured run. measured: seconds a step. memory: bytes, of the kind the source reports.

    assumed: fields that the source did not print and a rule filled; unknown ones are None in the stack.
    """

    id: str
    source: str
    split: str
    model: str
    chip: str
    job: Job
    stack: Stack
    measured: float | None
    memory: float | None
    memory_kind: str | None
    assumed: tuple[str, ...]
    suspect: str

    @property
    def wrong(self) -> bool:
        """Whether the row contradicts itself or its kind; one that is only doubtful is still scored."""
        return bool(self.suspect) and not self.suspect.startswith("doubtful")


@dataclass(frozen=True)
class Skipped:
    """A row that was not read, and why."""

    id: str
    source: str
    split: str
    reason: str


def fold(text: str) -> str:
    """Lower-case letters and digits of a name."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def number(row: Mapping[str, str | None], key: str) -> float | None:
    """A positive number of a row, or None when the cell is empty. Raises RowError when it is something else."""
    text = (row.get(key) or "").strip()
    if not text or text.lower() in ("nan", "none", "na", "n/a", "-", "?"):
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise RowError(f"{key} is {text!r}, no number") from None
    if not 0 < value < 1e30:
        raise RowError(f"{key} is {text!r}, no positive number")
    return value


def whole(row: Mapping[str, str | None], key: str) -> int | None:
    """A whole number of a row, or None when the cell is empty. Raises RowError when it is something else."""
    value = number(row, key)
    if value is not None and value != int(value):
        raise RowError(f"{key} is {value:g}, no whole number")
    return None if value is None else int(value)


def _flag(row: Mapping[str, str | None], key: str) -> bool | None:
    return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}.get(
        (row.get(key) or "").strip().lower()
    )


def _among(row: Mapping[str, str | None], key: str, known: Iterable[str]) -> str | None:
    text = (row.get(key) or "").strip().lower()
    return text if text in known else None


@cache
def _shapes() -> dict[str, dict[str, Any]]:
    shapes: dict[str, dict[str, Any]] = catalogue.read_toml(DATA / "run_models.toml")["models"]
    return shapes


def shape(name: str) -> Mapping[str, Any]:
    """Published shape of a model named in a table; empty when unknown."""
    folded = fold(name.replace("Nemotron-4", "Nemotron4"))
    found = [key for key in _shapes() if folded.startswith(key)]
    return _shapes()[max(found, key=len)] if found else {}


def _layers(params_b: float | None, d: int, ff: int, kv: int, heads: int, gated: bool, vocab: int) -> int:
    """Layers that a parameter count implies. Raises RowError when there is none to go by."""
    if params_b is None:
        raise RowError("layers are not printed and no parameter count tells them")
    each = (3 if gated else 2) * d * ff + d * d * (2 + 2 * kv / heads)
    count = round((params_b * 1e9 - vocab * d) / each)
    if count < 1:
        raise RowError(f"layers are not printed and {params_b:g}e9 parameters leave no room for one of width {d}")
    return count


def _config(row: Mapping[str, str | None], assumed: list[str]) -> TransformerConfig:
    """The model of a row: its columns, then its published shape, then the rules of thumb, each named."""
    name = (row.get("model") or "").strip()
    known = shape(name)

    def take(column: str, key: str) -> int | None:
        value = whole(row, column)
        if value is None and key in known:
            return int(known[key])
        return value

    d = take("hidden", "d_model")
    if d is None:
        raise RowError(f"the shape of model {name!r} is not printed: fill layers, hidden, ffn, heads")
    gated = _flag(row, "gated_mlp")
    if gated is None:
        gated = bool(known["gated"]) if "gated" in known else None
    if gated is None:
        gated = bool(re.search(r"llama|mistral|mixtral|qwen|intern|deepseek|gemma|yi-", name.lower()))
        assumed.append("gated_mlp")
    heads = take("heads", "n_heads")
    if heads is None:
        heads = max(1, round(d / 128))
        assumed.append("heads")
    kv = take("kv_heads", "n_kv_heads")
    if kv is None:
        kv = heads
    ff = take("ffn", "d_ff")
    if ff is None:
        ff = 4 * d
        assumed.append("ffn")
    vocab = take("vocab", "vocab_size")
    if vocab is None:
        vocab = int(catalogue.read_toml(DATA / "run_models.toml")["assumed"]["vocab_size"])
        assumed.append("vocab")
    layers = take("layers", "n_layers")
    if layers is None:
        layers = _layers(number(row, "params_b"), d, ff, kv, heads, gated, vocab)
        assumed.append("layers")
    moe = MoE(*known["moe"]) if "moe" in known else None
    if moe is None and re.search(r"moe|\d+x\d+b|\ba\d+(\.\d+)?b\b", name.lower()):
        raise RowError(f"{name!r} has experts whose number and width are not in the columns")
    if moe and 2 * layers < int(known.get("n_layers", layers)):  # proxies of a few layers keep one dense layer
        moe = replace(moe, n_dense_layers=min(moe.n_dense_layers, 1))
    head_dim = int(known.get("head_dim") or max(1, d // heads))
    return TransformerConfig(
        name or "unnamed",
        layers,
        d,
        ff,
        heads,
        min(kv, heads),
        head_dim,
        vocab,
        gated,
        False,
        moe=moe,
        mla=MLA(*known["mla"]) if "mla" in known else None,
    )


def _cluster(row: Mapping[str, str | None]) -> Cluster:
    """The cluster of a row's chip, with the row's own NIC and memory bandwidth where printed."""
    text = (row.get("chip") or "").strip()
    if fold(text) not in CLUSTERS:
        raise RowError(f"chip {text!r} is not in the catalogue: {near(fold(text), CLUSTERS)}")
    found = cluster_named(CLUSTERS[fold(text)])
    nic, hbm = number(row, "nic_gb_s_per_chip"), number(row, "hbm_tb_s")
    if nic is not None and found.levels[-1].topology == "switch":
        found = replace(found, levels=(*found.levels[:-1], replace(found.levels[-1], egress=nic * 1e9)))
    if hbm is not None:
        found = replace(found, chip=replace(found.chip, hbm_bandwidth=hbm * 1e12))
    return found


def precision_of(text: str) -> str:
    """Name of the matmul precision: bf16 (fp16 runs at its rate), fp8, fp4 or int8. Raises RowError for another."""
    folded = fold(text)
    for name in ("fp4", "fp8", "int8"):
        if name in folded:
            return name
    if folded in ("", "bf16", "fp16", "bfloat16", "float16", "half", "mixed", "16bit"):
        return "bf16"
    raise RowError(f"precision {text!r} is not known: write bf16, fp16, fp8, fp4 or int8")


def _recompute(text: str) -> str | None:
    """Kind of recomputation from free text: full, none, or selective when some modules are named; None when blank."""
    folded = fold(text)
    if folded in ("", "nan", "unknown"):
        return None
    return "full" if "full" in folded else "none" if folded in ("none", "no", "off", "0") else "selective"


def _fp8_recipe(text: str) -> str | None:
    """How 8-bit operands are scaled, as the precision's name says; plain "FP8" means one scale a tensor."""
    folded = fold(text)
    if "mx" in folded or "block" in folded:
        return None if "cs" in folded else "block"
    return "row" if "row" in folded else "tensor"


def _plan(row: Mapping[str, str | None], chips: int, assumed: list[str]) -> tuple[ParallelPlan, int | None]:
    """The layout of a row, and its virtual stages (None when unknown)."""
    told = "tier" in row and (row.get("tier") or "").strip() == "A"
    tp, pp, cp, ep = (whole(row, key) or 1 for key in ("tp", "pp", "cp", "ep"))
    if chips % (tp * pp * cp):
        raise RowError(f"TP {tp} x PP {pp} x CP {cp} does not divide {chips} chips")
    dp = chips // (tp * pp * cp)
    shards = whole(row, "fsdp") or 1
    no_layout = not any((row.get(key) or "").strip() for key in ("tp", "pp", "dp", "cp"))
    try:
        zero = whole(row, "zero_stage")
    except RowError:
        zero = 0  # a printed 0
    if zero is None:
        zero = 3 if shards > 1 or no_layout else 1
    vpp = whole(row, "vpp")
    if vpp is None and (pp == 1 or told):
        vpp = 1
    if vpp is not None and pp > 1:
        vpp = min(vpp, 64)
    if no_layout:
        assumed.append("layout")
    plan = ParallelPlan(dp, tp, pp, cp, min(ep, max(1, dp * cp * tp)), min(zero, 3), vpp or 1)
    return plan, vpp if pp > 1 else 1


def _shard_group(row: Mapping[str, str | None], plan: ParallelPlan) -> int:
    """Ranks that share one copy of the sharded state, as the row's columns or notes say."""
    shards = whole(row, "shard_group") or whole(row, "fsdp")
    note = re.search(r"zero1(?: size |=)(-?\d+)", row.get("notes") or "")
    if shards is None and note and int(note[1]) > 0:
        shards = int(note[1])
    everyone = int(plan.shard_group)
    return min(shards, everyone) if shards and shards > 1 else everyone


def read_row(row: Mapping[str, str | None]) -> Run:
    """A row as a run. Raises RowError with the reason when it cannot be predicted."""
    assumed: list[str] = []
    config, cluster = _config(row, assumed), _cluster(row)
    chips, seq_len = whole(row, "n_chips"), whole(row, "seq_len")
    if chips is None or seq_len is None:
        raise RowError(f"{'n_chips' if chips is None else 'seq_len'} is not printed")
    plan, vpp = _plan(row, chips, assumed)
    sequences, tokens = number(row, "global_batch_seqs"), number(row, "tokens_per_step")
    if sequences is None and tokens is not None:
        sequences = tokens / seq_len
    step, rate = number(row, "step_time_s"), number(row, "tokens_per_s_per_chip")
    micro = whole(row, "micro_batch")
    if micro is None:
        micro = _micro_batch(plan, seq_len, sequences, cluster.levels[0].topology == "torus")
        assumed.append("micro_batch")
    if sequences is None:
        sequences = float(8 * micro * int(plan.dp))
        assumed.append("global_batch_seqs")
        step = None
    if step is None and rate is not None:
        step = sequences * seq_len / (rate * chips)
    least = sequences / int(plan.dp)
    micro = max(1, min(micro, int(least)))
    precision = precision_of(row.get("precision") or "")
    if precision not in cluster.chip.peak:
        raise RowError(f"{cluster.chip.name} has no {precision} peak in the catalogue")
    guessed = re.split(r"[;,]", row.get("guessed") or "")
    assumed += [g.strip() for g in guessed if g.strip()]
    recompute = _among(row, "recompute_kind", RECOMPUTE_KINDS) or _recompute(row.get("recompute") or "")
    plan = replace(plan, micro_batch=micro, sequence_parallel=_flag(row, "sequence_parallel") is not False)
    grad = number(row, "grad_bytes")
    stack = Stack(
        _among(row, "attention_kernel", KERNELS),
        _among(row, "stack", STACKS),
        recompute,
        _flag(row, "tp_overlap"),
        _flag(row, "tp_backward_overlap"),
        _flag(row, "dp_overlap"),
        grad,
        _shard_group(row, plan),
        vpp,
        _fp8_recipe(row.get("precision") or ""),
    )
    job = Job(config, cluster, plan, chips, sequences * seq_len, seq_len, precision=precision, recipe=RECIPES["bf16"])
    memory = number(row, "memory_gib")
    return Run(
        str(row.get("id") or "?"),
        source_of(row),
        (row.get("split") or "").strip(),
        config.name,
        (row.get("chip") or "").strip(),
        job,
        stack,
        step,
        None if memory is None else memory * 2**30,
        _memory_kind(row) if memory is not None else None,
        tuple(dict.fromkeys(assumed)),
        (row.get("suspect") or "").strip(),
    )


def _micro_batch(plan: ParallelPlan, seq_len: int, sequences: float | None, torus: bool) -> int:
    """A micro-batch where none is printed: one sequence in a pipeline, all on TPUs, else about 8,192 tokens."""
    most = int(sequences / int(plan.dp)) if sequences else 8
    if torus:
        return max(1, most)  # their frameworks do not accumulate gradients unless asked
    return max(1, min(1 if plan.pp > 1 else max(1, 8192 // seq_len), most))


def _memory_kind(row: Mapping[str, str | None]) -> str:
    notes = (row.get("notes") or "").lower()
    return "allocated" if "max_allocated" in notes or "peak_memory_usage" in notes else "used"


def source_of(row: Mapping[str, str | None]) -> str:
    """Source of a row: its id without the number."""
    return re.sub(r"-\d+\Z", "", str(row.get("id") or "").strip()) or "unnamed"


def read_rows(path: str | Path = RUNS) -> list[dict[str, str | None]]:
    """The rows of a CSV file as mappings. Raises RowError when it cannot be read or has no such columns."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig", errors="replace") as file:
            rows = [{k: v if isinstance(v, str) else None for k, v in row.items() if k} for row in csv.DictReader(file)]
    except OSError as error:
        raise RowError(f"cannot read {path}: {error.strerror}; check the path") from None
    except csv.Error as error:
        raise RowError(f"{path} is no CSV table: {error}") from None
    if rows and "chip" not in rows[0]:
        raise RowError(
            f"{path} has no column 'chip': use the columns of {RUNS.name} ({', '.join(list(rows[0])[:5])} … found)"
        )
    return rows


def read_runs(path: str | Path = RUNS) -> tuple[list[Run], list[Skipped]]:
    """All runs of a CSV file, and the rows that could not be read with their reasons."""
    runs: list[Run] = []
    skipped: list[Skipped] = []
    for row in read_rows(path):
        try:
            runs.append(read_row(row))
        except (RowError, CatalogueError) as error:
            skipped.append(
                Skipped(str(row.get("id") or "?"), source_of(row), (row.get("split") or "").strip(), str(error))
            )
    return runs, skipped
