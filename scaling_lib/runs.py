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
from io import StringIO
from math import log2
from pathlib import Path
from typing import Any

from scaling_lib import catalogue
from scaling_lib.catalogue import DATA, CatalogueError, near
from scaling_lib.hardware import Cluster
from scaling_lib.hardware import cluster as cluster_named
from scaling_lib.job import Job, ParallelPlan
from scaling_lib.model import MLA, MoE, TransformerConfig
from scaling_lib.precision import RECIPES
from scaling_lib.predict import Stack

RUNS = DATA / "runs.csv"
NOTHING = ("", "nan", "none", "na", "n/a", "-", "--", "?", "null", "unknown", "tbd", "not reported")
LARGEST = {"": 1e7, "layers": 1000.0}  # counts beyond these are slips, and would take for ever to cut into chunks
UNITS = r"s|sec|seconds?|gpus?|chips?|tokens?|seqs?|sequences|gib|gb|b|layers?|tb/s|gb/s|tok/s"


class RowError(ValueError):
    """A row that cannot be predicted; the message is the reason."""


@dataclass(frozen=True)
class Run:
    """A measured run. measured: seconds a step. memory, reserved: bytes, as the source reports and by the allocator.

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
    reserved: float | None = None

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
    if text.lower() in NOTHING:
        return None
    plain = re.sub(rf"(?<=[\d\s])({UNITS})\Z", "", text.lower().lstrip("~\u2248 ")).strip()
    thousand = 1024.0 if key == "seq_len" and plain.endswith("k") else 1.0
    try:
        value = float(re.sub(r"[,_\s\u00a0\u202f]", "", plain[:-1] if thousand > 1 else plain)) * thousand
    except ValueError:
        raise RowError(f"{key} is {text!r}, no number") from None
    if not 1e-30 < value < 1e30:  # beyond them an error in percent is no number
        raise RowError(f"{key} is {text!r}, no positive number")
    return value


def whole(row: Mapping[str, str | None], key: str) -> int | None:
    """A whole number of a row, or None when the cell is empty. Raises RowError when it is something else."""
    value = number(row, key)
    if value is not None and value != int(value):
        raise RowError(f"{key} is {value:g}, no whole number")
    if value is not None and value > LARGEST.get(key, LARGEST[""]):
        raise RowError(f"{key} is {value:g}, more than any run has")
    return None if value is None else int(value)


def maybe(row: Mapping[str, str | None], key: str, assumed: list[str]) -> int | None:
    """A whole number that a rule can stand in for: None, and named in `assumed`, when the cell makes no sense.

    A printed 0 is the usual way to write that a degree is not used.
    """
    if re.fullmatch(r"[-+]?0*\.?0*", (row.get(key) or "").strip()):
        return None
    try:
        return whole(row, key)
    except RowError:
        assumed.append(key)
        return None


def _positive(row: Mapping[str, str | None], key: str, assumed: list[str]) -> float | None:
    """The same for a positive number that need not be whole."""
    try:
        return number(row, key)
    except RowError:
        assumed.append(key)
        return None


def _flag(row: Mapping[str, str | None], key: str) -> bool | None:
    text = (row.get(key) or "").strip().lower()
    if text in ("yes", "y", "true", "t", "1", "1.0", "on", "enabled"):
        return True
    return False if text in ("no", "n", "false", "f", "0", "0.0", "off", "none", "disabled") else None


# words by which tables name what the predictor tells apart; the first pattern found decides
KERNEL_WORDS = (
    (r"unfused|eager|naive|math|no-?flash", "unfused"),
    (r"native|cudnn|transformer ?engine|\bte\b|(flash(attention)?|fa)[- _]?[34]|fused|splash", "flash-native"),
    (r"flash-?old|triton|(flash(attention)?|fa)[- _]?[12]|xformers", "flash-old"),
)
STACK_WORDS = (
    (r"generic|deepspeed|eager|neox|llm-foundry|internevo|colossal|hugging ?face|accelerate", "generic"),
    (r"tuned|megatron|mcore|nemo|transformer ?engine|maxtext|\bxla\b|\bjax\b|\bpax|compile|megascale|hai-llm", "tuned"),
)
GRAPH_WORDS = (
    (r"^(none|no|off|0|false|disabled)$", "none"),
    (r"step|full|iteration|whole", "step"),
    (r".", "layers"),
)
RECOMPUTE_WORDS = (
    (r"half|every ?(2|second)|1/2", "half"),
    (r"full|uniform|all layers|^yes$|^true$", "full"),
    (r"^(none|no|off|0|false|disabled)$", "none"),
    (r"select|minimal|partial|offload|norm|act|core|att|qkv|mlp|moe|proj", "selective"),
)


def _word(text: str | None, table: Iterable[tuple[str, str]]) -> str | None:
    """What a free text names, or None."""
    folded = (text or "").strip().lower()
    if folded in ("", "nan", "unknown", "?", "-"):
        return None
    return next((name for pattern, name in table if re.search(pattern, folded)), None)


@cache
def _rules() -> dict[str, float]:
    """Rules for what a table does not print."""
    rules: dict[str, float] = catalogue.read_toml(DATA / "run_models.toml")["assumed"]
    return rules


@cache
def _shapes() -> dict[str, dict[str, Any]]:
    shapes: dict[str, dict[str, Any]] = catalogue.read_toml(DATA / "run_models.toml")["models"]
    return shapes


def shape(name: str) -> Mapping[str, Any]:
    """Published shape of a model named in a table; empty when unknown."""
    words = re.sub(r"^[\w.-]+/", "", name.strip())  # organisations stand before a slash
    folded = fold(re.sub(r"^meta[ -]|-?instruct|-?base", "", words.replace("Nemotron-4", "Nemotron4"), flags=re.I))
    found = [key for key in _shapes() if folded.startswith(key)]
    return _shapes()[max(found, key=len)] if found else {}


def _layers(params_b: float | None, d: int, ff: int, kv: int, heads: int, gated: bool, vocab: int) -> int:
    """Layers that a parameter count implies. Raises RowError when there is none to go by."""
    if params_b is None:
        raise RowError("layers are not printed and no parameter count tells them")
    each = (3 if gated else 2) * d * ff + d * d * (2 + 2 * kv / heads)
    count = round((params_b * 1e9 - vocab * d) / each)
    if not 1 <= count <= LARGEST["layers"]:
        raise RowError(f"layers are not printed and {params_b:g}e9 parameters of width {d} would take {count}")
    return count


def _params_b(row: Mapping[str, str | None], name: str, assumed: list[str]) -> float | None:
    """Parameters in thousands of millions: the column, or what the name says, as in "MaxText-128B"."""
    printed = _positive(row, "params_b", assumed)
    if printed is not None:
        return printed
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([bmt])(?![a-z0-9])", name.replace("_", "-"), re.IGNORECASE)
    return float(found[1]) * {"m": 1e-3, "b": 1.0, "t": 1e3}[found[2].lower()] if found else None


def _width(params_b: float) -> int:
    """Width of a dense model of common proportions: 12 L D^2 parameters and D = 128 L, in steps of 128."""
    steps = round(float((params_b * 1e9 * 128 / 12) ** (1 / 3)) / 128)
    return max(128, 128 * steps)


EXPERT_COLUMNS = ("n_experts", "experts_per_token", "expert_ffn", "n_shared_experts", "n_dense_layers")
EXPERT_NAMES = r"moe|\d+x\d+b|\ba\d+(\.\d+)?b\b"


def _experts(
    row: Mapping[str, str | None], known: Mapping[str, Any], name: str, layers: int, assumed: list[str]
) -> MoE | None:
    """Experts of a row: its own columns where it has them, then the published shape. Raises RowError without either."""
    columns = [maybe(row, key, assumed) for key in EXPERT_COLUMNS]
    if columns[0] and columns[1] and columns[2]:
        return MoE(columns[0], columns[1], columns[2], columns[3] or 0, columns[4] or 0)
    moe = MoE(*known["moe"]) if "moe" in known else None
    if moe is None and not known and re.search(EXPERT_NAMES, name.lower()):
        wanted = ", ".join(EXPERT_COLUMNS)
        raise RowError(f"{name!r} has experts whose number and width are not in the columns: fill {wanted}")
    if moe and 2 * layers < int(known.get("n_layers", layers)):  # proxies of a few layers keep one dense layer
        moe = replace(moe, n_dense_layers=min(moe.n_dense_layers, 1))
    return moe


def _config(row: Mapping[str, str | None], assumed: list[str]) -> TransformerConfig:
    """The model of a row: its columns, then its published shape, then the rules of thumb, each named."""
    name = (row.get("model") or "").strip()
    known = shape(name)
    stand_in = bool(known.get("approximate"))
    if stand_in:
        assumed.append("architecture")

    def take(column: str, key: str) -> int | None:
        value = None if stand_in else maybe(row, column, assumed)
        return int(known[key]) if value is None and key in known else value

    size = _params_b(row, name, assumed)
    d = take("hidden", "d_model")
    if d is None:
        if size is None or re.search(EXPERT_NAMES, name.lower()):
            raise RowError(f"the shape of model {name!r} is not printed: fill layers, hidden, ffn, heads")
        d = _width(size)
        assumed.append("architecture")
    gated = _flag(row, "gated_mlp")
    if gated is None:
        gated = bool(known["gated"]) if "gated" in known else None
    if gated is None:
        gated = bool(re.search(r"llama|mistral|mixtral|qwen|intern|deepseek|gemma|yi-|olmo|phi-?3", name.lower()))
        assumed.append("gated_mlp")
    heads = take("heads", "n_heads")
    if heads is None:
        heads = max(1, round(d / 128))
        assumed.append("heads")
    kv = take("kv_heads", "n_kv_heads") or heads
    ff = take("ffn", "d_ff")
    if ff is None:
        ff = 128 * round(8 * d / 3 / 128) if gated and "architecture" in assumed else 4 * d
        assumed.append("ffn")
    vocab = take("vocab", "vocab_size")
    if vocab is None:
        vocab = int(_rules()["vocab_size"])
        assumed.append("vocab")
    layers = take("layers", "n_layers")
    if layers is None:
        layers = _layers(size, d, ff, kv, heads, gated, vocab)
        assumed.append("layers")
    return TransformerConfig(
        name or "unnamed",
        layers,
        d,
        ff,
        heads,
        min(kv, heads),
        int(known.get("head_dim") or max(1, d // heads)),
        vocab,
        gated,
        False,
        moe=_experts(row, known, name, layers, assumed),
        mla=MLA(*known["mla"]) if "mla" in known else None,
    )


@cache
def _chips() -> dict[str, dict[str, Any]]:
    chips: dict[str, dict[str, Any]] = catalogue.read_toml(DATA / "run_chips.toml")["chips"]
    return chips


def _variant(name: str, entry: Mapping[str, Any]) -> Cluster:
    """The usual cluster of a chip, with the figures in which the chip differs from the catalogue's."""
    where = f"chip {name} of run_chips.toml"
    found = cluster_named(str(entry["cluster"]))
    changes: dict[str, Any] = {}
    if "peak" in entry:
        changes["peak"] = {p: catalogue.peak(entry["peak"], p, where) for p in entry["peak"]}
    if "hbm" in entry:
        changes["hbm"] = catalogue.figure(entry, "hbm", "B", where)
    if "hbm_bandwidth" in entry:
        changes["hbm_bandwidth"] = catalogue.bandwidth(entry, "hbm_bandwidth", where, "read+write")
    levels = list(found.levels)
    for key, at in (("inner", 0), ("outer", -1)):
        if key in entry:
            levels[at] = replace(levels[at], egress=catalogue.bandwidth(entry[key], "egress", where, "egress", "chip"))
    if not changes and tuple(levels) == found.levels:
        return found
    return replace(found, chip=replace(found.chip, name=name, **changes), levels=tuple(levels))


@cache
def chip_cluster(text: str) -> Cluster:
    """The cluster of a chip as a table spells it. Raises RowError for a name that no pattern knows."""
    folded = fold(text)
    for name, entry in _chips().items():
        if any(re.search(pattern, folded) for pattern in entry["names"]):
            return _variant(name, entry)
    raise RowError(f"chip {text!r} is not in the catalogue: {near(folded, _chips())}")


def _cluster(row: Mapping[str, str | None], assumed: list[str]) -> Cluster:
    """The cluster of a row's chip, with the row's own NIC and memory bandwidth where printed."""
    found = chip_cluster((row.get("chip") or "").strip())
    nic, hbm = _positive(row, "nic_gb_s_per_chip", assumed), _positive(row, "hbm_tb_s", assumed)
    if nic is not None and found.levels[-1].topology == "switch":
        found = replace(found, levels=(*found.levels[:-1], replace(found.levels[-1], egress=nic * 1e9)))
    if hbm is not None:
        found = replace(found, chip=replace(found.chip, hbm_bandwidth=hbm * 1e12))
    return found


def precision_of(text: str) -> str:
    """Name of the matmul precision: bf16 (fp16 runs at its rate), fp8, fp4 or int8. Raises RowError for another."""
    folded = fold(text)
    for name, words in (("fp4", r"fp4"), ("fp8", r"fp8|float8|e4m3"), ("int8", r"int8|aqt")):
        if re.search(words, folded):
            return name
    if folded in ("nan", "unknown", "mixed", "half", "amp", "16bit", "") or re.search(r"(b|f|fp|float)16", folded):
        return "bf16"
    raise RowError(f"precision {text!r} is not known: write bf16, fp16, fp8, fp4 or int8")


def _fp8_recipe(text: str) -> str | None:
    """How 8-bit operands are scaled, as the precision's name says; plain "FP8" means one scale a tensor."""
    folded = fold(text)
    if "mx" in folded or "block" in folded:
        return None if "cs" in folded else "block"
    return "row" if "row" in folded else "tensor"


def _plan(row: Mapping[str, str | None], chips: int, assumed: list[str]) -> tuple[ParallelPlan, int | None]:
    """The layout of a row, and its virtual stages (None when unknown)."""
    told = (row.get("tier") or "").strip().upper() == "A"
    tp, pp, cp, ep = (maybe(row, key, assumed) or 1 for key in ("tp", "pp", "cp", "ep"))
    if chips % (tp * pp * cp):
        raise RowError(f"TP {tp} x PP {pp} x CP {cp} does not divide {chips} chips")
    dp = chips // (tp * pp * cp)
    shards = maybe(row, "fsdp", assumed) or 1
    no_layout = not any((row.get(key) or "").strip() for key in ("tp", "pp", "dp", "cp"))
    stage = re.search(r"[0-3]", row.get("zero_stage") or "")
    zero = int(stage[0]) if stage else 3 if shards > 1 or no_layout else 1
    vpp = maybe(row, "vpp", assumed)
    if "dualpipe" in _notes(row):
        vpp = vpp or 2  # each device holds a piece of both ends, which halves the bubble as two chunks do
    if vpp is None and (pp == 1 or told):
        vpp = 1
    if vpp is not None and pp > 1:
        vpp = min(vpp, 64)
    if no_layout:
        assumed.append("layout")
    plan = ParallelPlan(dp, tp, pp, cp, min(ep, max(1, dp * cp * tp)), zero, vpp or 1)
    return plan, vpp if pp > 1 else 1


def _notes(row: Mapping[str, str | None]) -> str:
    return (row.get("notes") or "").lower()


@cache
def _recipes() -> list[dict[str, Any]]:
    recipes: list[dict[str, Any]] = catalogue.read_toml(DATA / "run_recipes.toml")["recipes"]
    return recipes


def recipe(row: Mapping[str, str | None]) -> Mapping[str, Any]:
    """What a published recipe sets that the row's table does not print: the first one that fits; empty without one."""
    table = f"{row.get('source_repo_or_title') or ''} {row.get('source_path_or_table') or ''}".lower()
    found = re.search(r"\b(2\d\.\d\d)(\.\d\d)? nemo container", table)
    release = found[1] if found else ""
    texts = {"table": table} | {key: fold(row.get(key) or "") for key in ("model", "chip", "precision")}
    for entry in _recipes():
        first, last = entry.get("releases", ("", "99"))
        if first <= release <= last and all(re.search(entry.get(key, ""), text) for key, text in texts.items()):
            return entry
    return {}


def _experts_stack(row: Mapping[str, str | None], moe: MoE | None, stack: Stack) -> Stack:
    """The stack with what only models with experts ask for: the row's columns, then its notes, then its recipe."""
    if moe is None:
        return stack
    known, graphs = recipe(row), _word(row.get("graphs"), GRAPH_WORDS)
    overlap = _flag(row, "ep_overlap")
    if overlap is None:
        overlap = True if re.search(r"dualpipe|a2a overlap", _notes(row)) else known.get("ep_overlap")
    cut = maybe(row, "expert_tp", []) or known.get("expert_tp")
    told = {key: known[key] for key in ("kernel", "recompute") if key in known and getattr(stack, key) is None}
    told["dispatch_bytes"] = known.get("dispatch_bytes", stack.dispatch_bytes)
    return replace(stack, ep_overlap=overlap, graphs=graphs or known.get("graphs"), expert_tp=cut, **told)


def _shard_group(row: Mapping[str, str | None], plan: ParallelPlan) -> int:
    """Ranks that share one copy of the sharded state, as the row's columns or notes say."""
    shards = maybe(row, "shard_group", []) or maybe(row, "fsdp", [])
    note = re.search(r"zero1(?: size |=)(-?\d+)", _notes(row))
    if shards is None and note and int(note[1]) > 0:
        shards = int(note[1])
    everyone = int(plan.shard_group)
    return min(shards, everyone) if shards and shards > 1 else everyone


def _chips_of_layout(row: Mapping[str, str | None], assumed: list[str]) -> int:
    """Chips of a row that tells the degrees of its layout alone. Raises RowError when they do not say how many."""
    tp, pp, cp, dp = (maybe(row, key, assumed) for key in ("tp", "pp", "cp", "dp"))
    if dp is None or (tp is None and pp is None):
        raise RowError("n_chips is not printed")
    assumed.append("n_chips")
    return dp * (tp or 1) * (pp or 1) * (cp or 1)


def _contradictions(row: Mapping[str, str | None], config: TransformerConfig, plan: ParallelPlan) -> list[str]:
    """Printed degrees that cannot be as printed: replicas that do not multiply to the chips, heads or experts cut."""
    found, unused = [], list[str]()
    printed, shards = maybe(row, "dp", unused), maybe(row, "fsdp", unused) or 1
    if printed and plan.dp not in (printed, printed * shards):
        found.append("dp")
    if config.n_heads % plan.tp:
        found.append("tp")
    if config.moe and config.moe.n_experts % plan.ep:
        found.append("ep")
    return found


def read_row(row: Mapping[str, str | None]) -> Run:
    """A row as a run. Raises RowError with the reason when it cannot be predicted."""
    assumed: list[str] = []
    if re.search(r"(?<![a-z])q?lora(?!_rank|[a-z])", f"{row.get('model') or ''} {_notes(row)}", re.IGNORECASE):
        raise RowError("LoRA trains adapters: frozen weights have no weight gradients, which a step here counts")
    config, cluster = _config(row, assumed), _cluster(row, assumed)
    chips, seq_len = whole(row, "n_chips"), whole(row, "seq_len")
    if chips is None:
        chips = _chips_of_layout(row, assumed)
    plan, vpp = _plan(row, chips, assumed)
    sequences, tokens = (_positive(row, key, assumed) for key in ("global_batch_seqs", "tokens_per_step"))
    if seq_len is None:
        seq_len = round(tokens / sequences) if tokens and sequences else int(_rules()["seq_len"])
        assumed.append("seq_len")
    if sequences is None and tokens is not None:
        sequences = tokens / seq_len
    step, rate = (_positive(row, key, assumed) for key in ("step_time_s", "tokens_per_s_per_chip"))
    micro = maybe(row, "micro_batch", assumed)
    if micro is None:
        micro = _micro_batch(plan, config, cluster, seq_len, sequences)
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
    assumed += _contradictions(row, config, plan)
    guessed = re.split(r"[;,]", row.get("guessed") or "")
    assumed += [g.strip() for g in guessed if g.strip()]
    recompute = _word(row.get("recompute_kind"), RECOMPUTE_WORDS) or _word(row.get("recompute"), RECOMPUTE_WORDS)
    plan = replace(plan, micro_batch=micro, sequence_parallel=_flag(row, "sequence_parallel") is not False)
    tuning = _word(row.get("stack"), STACK_WORDS)
    if tuning is None:
        tuning = _word(f"{row.get('source_repo_or_title') or ''} {config.name}", STACK_WORDS)
        assumed += ["stack"] if tuning else []
    grad = _positive(row, "grad_bytes", assumed)
    stack = Stack(
        _word(row.get("attention_kernel"), KERNEL_WORDS),
        tuning,
        recompute,
        _flag(row, "tp_overlap"),
        _flag(row, "tp_backward_overlap"),
        _flag(row, "dp_overlap"),
        grad,
        _shard_group(row, plan),
        vpp,
        _fp8_recipe(row.get("precision") or ""),
    )
    stack = _experts_stack(row, config.moe, stack)
    job = Job(config, cluster, plan, chips, sequences * seq_len, seq_len, precision=precision, recipe=RECIPES["bf16"])
    memory = _positive(row, "memory_gib", assumed)
    return Run(
        (row.get("id") or "?").strip(),
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
        _reserved(row),
    )


def _micro_batch(
    plan: ParallelPlan, config: TransformerConfig, cluster: Cluster, seq_len: int, sequences: float | None
) -> int:
    """A micro-batch where none is printed: one sequence in a pipeline, all on TPUs, else about 8,192 tokens, or more
    where a model that is not split leaves room for their activations."""
    most = int(sequences / int(plan.dp)) if sequences else 8
    if cluster.levels[0].topology == "torus":
        return max(1, most)  # their frameworks do not accumulate gradients unless asked
    tokens, rules = 8192.0, _rules()
    if plan.pp == 1 and plan.tp == 1:
        each = rules["activation_bytes"] * config.d_model * config.n_layers + rules["logit_bytes"] * config.vocab_size
        tokens = max(tokens, rules["activation_share"] * cluster.chip.hbm / each)
    fitting = 2 ** int(log2(max(1.0, tokens / seq_len)))
    return max(1, min(1 if plan.pp > 1 else fitting, most))


TENSORS = r"max[-_](memory[-_])?allocated|peak_memory_usage|activations [\d.]+ gib"  # what a note calls them


def _memory_kind(row: Mapping[str, str | None]) -> str:
    """Whether a row's memory is that of tensors ("allocated"), or what an allocator or the driver shows ("used")."""
    return "allocated" if re.search(TENSORS, _notes(row)) else "used"


def _reserved(row: Mapping[str, str | None]) -> float | None:
    """Bytes that the allocator reserved, where a note tells them beside the allocated ones."""
    found = re.search(r"reserved (\d+(?:\.\d+)?)", _notes(row))
    return float(found[1]) * 2**30 if found else None


def source_of(row: Mapping[str, str | None]) -> str:
    """Source of a row: its id without the number."""
    return re.sub(r"-\d+\Z", "", str(row.get("id") or "").strip()) or "unnamed"


def _table(path: str | Path) -> str:
    """Text of a file as spreadsheets write it: UTF-8 or UTF-16, with commas, semicolons or tabs."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise RowError(f"cannot read {path}: {error.strerror}; check the path") from None
    wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    return raw.decode("utf-16" if wide else "utf-8-sig", errors="replace")


def read_rows(path: str | Path = RUNS) -> list[dict[str, str | None]]:
    """The rows of a CSV file as mappings. Raises RowError when it cannot be read or has no such columns."""
    text = _table(path)
    header = text.splitlines()[0] if text.strip() else ""
    comma = max(",;\t", key=header.count)
    try:
        rows = [
            {re.sub(r"\W+", "_", k.strip().lower()): v if isinstance(v, str) else None for k, v in row.items() if k}
            for row in csv.DictReader(StringIO(text, newline=""), delimiter=comma)
        ]
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
    seen: set[tuple[str | None, ...]] = set()
    for row in read_rows(path):
        try:
            cells = tuple(row.values())
            if (row.get("id") or "").strip() and cells in seen:
                raise RowError("repeats a row that stands above, cell by cell")
            seen.add(cells)
            runs.append(read_row(row))
        except (RowError, CatalogueError) as error:
            skipped.append(
                Skipped((row.get("id") or "?").strip(), source_of(row), (row.get("split") or "").strip(), str(error))
            )
    return runs, skipped
