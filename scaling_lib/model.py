"""Models as configurations: exact parameter counts and FLOPs per token under named conventions.

Letters: L n_layers, D d_model, F d_ff, H n_heads, K n_kv_heads, h head_dim, V vocab_size, S seq_len.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from scaling_lib import catalogue
from scaling_lib.catalogue import CatalogueError
from scaling_lib.ledger import Ledger, Part

CONVENTIONS = ("6N", "matmul", "causal", "full", "megatron")


@dataclass(frozen=True)
class MoE:
    """Mixture of experts: routed and shared experts of width d_ff_expert after n_dense_layers dense layers.

    n_groups, groups_per_token: routing that takes a token's experts from so many of equal groups, one a node; 1 of 1
    without such a limit.
    """

    n_experts: int
    experts_per_token: int
    d_ff_expert: int
    n_shared_experts: int = 0
    n_dense_layers: int = 0
    n_groups: int = 1
    groups_per_token: int = 1


@dataclass(frozen=True)
class MLA:
    """Multi-head latent attention (DeepSeek): low-rank queries and keys, a rotary part beside them."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class TransformerConfig:
    """A decoder-only transformer. Whole numbers, as in its published config."""

    name: str
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    gated: bool
    tied_embeddings: bool
    norm: str = "rmsnorm"
    max_seq_len: int | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    moe: MoE | None = None
    mla: MLA | None = None

    @property
    def mlp_matrices(self) -> int:
        """Weight matrices of one MLP: 3 with a gate, 2 without."""
        return 3 if self.gated else 2

    @property
    def n_moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return self.n_layers - self.moe.n_dense_layers if self.moe else 0

    @property
    def attention_width(self) -> int:
        """Multiply-adds of attention per token and position attended, in one layer: 2Hh, or the widths of MLA."""
        if self.mla:
            return self.n_heads * (self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim + self.mla.v_head_dim)
        return 2 * self.n_heads * self.head_dim


def attention_params(config: TransformerConfig) -> int:
    """Matmul weights of one attention block: DHh + 2DKh + HhD, or the low-rank factors of MLA."""
    d, h = config.d_model, config.n_heads
    if config.mla:
        m = config.mla
        queries = m.q_lora_rank * (d + h * (m.qk_nope_head_dim + m.qk_rope_head_dim))
        keys = d * (m.kv_lora_rank + m.qk_rope_head_dim) + m.kv_lora_rank * h * (m.qk_nope_head_dim + m.v_head_dim)
        return queries + keys + h * m.v_head_dim * d
    return d * config.head_dim * (2 * h + 2 * config.n_kv_heads)


def mlp_params(config: TransformerConfig, d_ff: int | None = None) -> int:
    """Matmul weights of one dense MLP (or one expert, by its d_ff): 3DF gated, 2DF not."""
    return config.mlp_matrices * config.d_model * (config.d_ff if d_ff is None else d_ff)


def _norm_params(config: TransformerConfig) -> int:
    """Norm weights and attention biases of one layer."""
    norms = 2 * config.d_model
    if config.mla:
        norms += config.mla.q_lora_rank + config.mla.kv_lora_rank
    if config.qk_norm:
        norms += 2 * config.head_dim
    if config.qkv_bias:
        norms += config.head_dim * (config.n_heads + 2 * config.n_kv_heads)
    return norms


def params(config: TransformerConfig, active: bool = False) -> Ledger:
    """Parameters by component, exact.

    active: count only the experts that one token passes through.
    """
    d, moe = config.d_model, config.moe
    dense = config.n_layers - config.n_moe_layers
    rows = [
        Part("embedding", config.vocab_size * d, "V D"),
        Part("layers/attention", config.n_layers * attention_params(config), "L D h (2H + 2K)"),
        Part("layers/mlp", dense * mlp_params(config), "L 3 D F" if config.gated else "L 2 D F"),
    ]
    if moe:
        used = moe.experts_per_token if active else moe.n_experts
        expert = mlp_params(config, moe.d_ff_expert)
        rows += [
            Part("layers/experts", config.n_moe_layers * used * expert, "routed experts"),
            Part("layers/shared experts", config.n_moe_layers * moe.n_shared_experts * expert, "shared experts"),
            Part("layers/router", config.n_moe_layers * d * moe.n_experts, "D E"),
        ]
    rows += [Part("norms", config.n_layers * _norm_params(config) + d, "2 D a layer, D at the end")]
    if not config.tied_embeddings:
        rows += [Part("head", config.vocab_size * d, "V D")]
    return Ledger(f"Parameters of {config.name}", "param", tuple(rows))


def n_params(config: TransformerConfig) -> int:
    """Total parameters N."""
    return int(params(config).total)


def n_active_params(config: TransformerConfig) -> int:
    """Parameters that one token passes through; equal to N for a dense model."""
    return int(params(config, active=True).total)


def matmul_params(config: TransformerConfig) -> int:
    """Active parameters that are multiplied: without the embedding look-up and the norms, with the head."""
    ledger = params(config, active=True)
    return int(ledger["layers"]) + config.vocab_size * config.d_model


def attention_flops_per_token(config: TransformerConfig, seq_len: Any, causal: bool = True) -> Any:
    """Forward and backward FLOPs per token of scores and values: 6 L S H h causal, 12 L S H h full."""
    return (3 if causal else 6) * config.n_layers * seq_len * config.attention_width


def flops_per_token(config: TransformerConfig, seq_len: Any = None, convention: str = "causal") -> Any:
    """Training FLOPs per token, forward and backward, without recomputation.

    convention: "6N" (six per active parameter), "matmul" (six per multiplied parameter), "causal" (matmul and
    attention over half the sequence: MaxText), "full" (attention over all of it: PaLM, torchtitan), "megatron" (causal
    as Megatron-LM counts it: without the router of a mixture, with the latent norms of MLA; equal to causal otherwise).
    Raises ValueError for another convention, or when attention is counted and seq_len (tokens) is missing.
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"unknown FLOPs convention {convention!r}: use one of {', '.join(CONVENTIONS)}")
    if convention == "6N":
        return 6 * n_active_params(config)
    if convention == "matmul":
        return 6 * matmul_params(config)
    if seq_len is None:
        raise ValueError(f"convention {convention!r} counts attention: give seq_len in tokens, or use '6N' or 'matmul'")
    flops = 6 * matmul_params(config) + attention_flops_per_token(config, seq_len, convention != "full")
    return flops + 6 * _megatron_extra_params(config) if convention == "megatron" else flops


def _megatron_extra_params(config: TransformerConfig) -> int:
    """Weights that Megatron-LM's counter adds to the multiplied ones: MLA's latent norms, less the router."""
    latent = config.mla.q_lora_rank + config.mla.kv_lora_rank if config.mla else 0
    router = config.d_model * config.moe.n_experts if config.moe else 0
    return config.n_layers * latent - config.n_moe_layers * router


def config_from(name: str, entry: Mapping[str, Any]) -> TransformerConfig:
    """A model from its table. Raises CatalogueError for what is missing or of the wrong kind."""
    where = f"model {name}"
    catalogue.only(entry, (*TransformerConfig.__dataclass_fields__, "linear_bias", "source", "date", "kind"), where)
    for key in ("source", "date", "kind"):
        if not entry.get(key):
            raise CatalogueError(f"{where}: {key} is missing; every model says source, date and kind")
    catalogue.choice(entry, "kind", where, catalogue.KINDS)
    whole: dict[str, Any] = {
        k: catalogue.whole(entry, k, where)
        for k in ("n_layers", "d_model", "d_ff", "n_heads", "n_kv_heads", "head_dim", "vocab_size")
    }
    flags = {k: catalogue.choice(entry, k, where, (True, False)) for k in ("gated", "tied_embeddings")}
    optional = {k: catalogue.choice(entry, k, where, (True, False)) for k in ("qk_norm", "qkv_bias") if k in entry}
    if entry.get("linear_bias"):
        raise CatalogueError(
            f"{where}: linear_bias is not counted by this library; set it to false and say so in the source"
        )
    config = TransformerConfig(
        name,
        **whole,
        **flags,
        **optional,
        norm=catalogue.choice(entry, "norm", where, ("rmsnorm", "layernorm")),
        max_seq_len=catalogue.whole(entry, "max_seq_len", where) if "max_seq_len" in entry else None,
        moe=_table(MoE, entry["moe"], f"{where}, moe") if "moe" in entry else None,
        mla=_table(MLA, entry["mla"], f"{where}, mla") if "mla" in entry else None,
    )
    return _consistent(config, where)


def _consistent(config: TransformerConfig, where: str) -> TransformerConfig:
    """The model itself. Raises CatalogueError when its numbers contradict one another."""
    moe = config.moe
    if config.head_dim < 1:
        raise CatalogueError(f"{where}: {config.n_heads} heads share a width of {config.d_model}; state head_dim")
    if config.n_heads % config.n_kv_heads:
        raise CatalogueError(f"{where}: {config.n_heads} heads do not divide into {config.n_kv_heads} key-value heads")
    if moe and not 1 <= moe.experts_per_token <= moe.n_experts:
        what = f"a token passes through {moe.experts_per_token} of {moe.n_experts} experts"
        raise CatalogueError(f"{where}: {what}; write experts_per_token from 1 to n_experts")
    if moe and moe.n_dense_layers > config.n_layers:
        what = f"{moe.n_dense_layers} dense layers of {config.n_layers} in all"
        raise CatalogueError(f"{where}: {what}; write n_dense_layers of at most n_layers")
    if moe:
        _grouped(moe, where)
    return config


def _grouped(moe: MoE, where: str) -> None:
    """Raise CatalogueError for groups of experts that do not divide them or cannot hold a token's experts."""
    if moe.n_experts % moe.n_groups:
        what = f"{moe.n_experts} experts do not divide into {moe.n_groups} groups"
        raise CatalogueError(f"{where}: {what}; write n_groups that divides n_experts")
    open_ = moe.groups_per_token * moe.n_experts // moe.n_groups
    if moe.groups_per_token > moe.n_groups or open_ < moe.experts_per_token:
        what = f"a token takes {moe.experts_per_token} experts from {moe.groups_per_token} of {moe.n_groups} groups"
        raise CatalogueError(
            f"{where}: {what}; write groups_per_token of at most n_groups, which hold as many experts as a token takes"
        )


def _table(cls: Any, entry: Mapping[str, Any], where: str) -> Any:
    """MoE or MLA from its table: whole numbers, at least 1 where the class has no default; groups may be left out."""
    catalogue.only(entry, cls.__dataclass_fields__, where)
    fields = {k: f.default for k, f in cls.__dataclass_fields__.items() if k in entry or f.default != 1}
    return cls(**{key: catalogue.whole(entry, key, where, 0 if least == 0 else 1) for key, least in fields.items()})


_HF_TYPES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3")


def from_hugging_face(name: str, config: Mapping[str, Any]) -> TransformerConfig:
    """A model from a Hugging Face config.json that was read into a mapping.

    Absent head_dim, num_key_value_heads and tie_word_embeddings mean what they mean to that library for these model
    types (hidden_size / heads, all heads, false). Raises CatalogueError for another model type or a missing key.
    """
    where = f"config {name}"
    kind = config.get("model_type")
    if kind not in _HF_TYPES:
        raise CatalogueError(
            f"{where}: model_type {kind!r} is not supported ({', '.join(_HF_TYPES)}); write a TOML entry instead"
        )
    _refuse_uncounted(config, where)
    whole = partial(_hf_whole, config, where)
    heads, d_model = whole("num_attention_heads"), whole("hidden_size")
    found = TransformerConfig(
        name,
        whole("num_hidden_layers"),
        d_model,
        whole("intermediate_size"),
        heads,
        whole("num_key_value_heads", default=heads),
        whole("head_dim", default=d_model // heads),
        whole("vocab_size"),
        gated=True,
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_seq_len=whole("max_position_embeddings") if "max_position_embeddings" in config else None,
        qk_norm=kind in ("qwen3", "qwen3_moe"),
        qkv_bias=kind == "qwen2",
        moe=_hf_moe(config, where),
        mla=MLA(*(whole(k) for k in MLA.__dataclass_fields__)) if config.get("kv_lora_rank") else None,
    )
    return _consistent(found, where)


def _hf_whole(config: Mapping[str, Any], where: str, key: str, default: int | None = None) -> int:
    """A whole number of a config.json; the default, where there is one, when the key is absent or null."""
    if config.get(key) is None and default is not None:
        return default
    return catalogue.whole(config, key, where, least=0 if default == 0 else 1)


def _hf_moe(config: Mapping[str, Any], where: str) -> MoE | None:
    """The mixture of experts of a config.json; None without experts."""
    key = next((k for k in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(k)), None)
    if key is None:
        return None
    whole = partial(_hf_whole, config, where)
    free = config.get("topk_method") == "greedy"  # such a router has groups in its config and does not look at them
    return MoE(
        whole(key),
        whole("num_experts_per_tok"),
        whole("moe_intermediate_size" if config.get("moe_intermediate_size") is not None else "intermediate_size"),
        whole("n_shared_experts", default=0),
        whole("first_k_dense_replace", default=0),
        1 if free else whole("n_group", default=1),
        1 if free else whole("topk_group", default=1),
    )


# key of a config.json -> the only value this library counts; any other changes the parameters
_HF_COUNTED = {
    "attention_bias": False,
    "mlp_bias": False,
    "decoder_sparse_step": 1,
    "moe_layer_freq": 1,
    "mlp_only_layers": [],
}


def _refuse_uncounted(config: Mapping[str, Any], where: str) -> None:
    """Raise CatalogueError for a setting that adds or moves weights in a way this library does not count."""
    for key, counted in _HF_COUNTED.items():
        if config.get(key, counted) not in (counted, None):
            raise CatalogueError(
                f"{where}: {key} = {config[key]!r} is not counted by this library, only {counted!r}; "
                "write a TOML entry for the nearest model it counts"
            )


def read_hugging_face(path: str | Path) -> TransformerConfig:
    """A model from a Hugging Face config.json on disk, named by its folder. Raises CatalogueError when unreadable."""
    import json  # 7 ms at import, needed only when a file is read

    path = Path(path)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogueError(f"cannot read {path}: {error.strerror}; check the path") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise CatalogueError(f"{path} holds no JSON object; give the config.json of a model")
    return from_hugging_face(path.resolve().parent.name or path.stem, config)


@cache
def model(name: str) -> TransformerConfig:
    """A model of the catalogue by name. Raises CatalogueError that lists near names."""
    return config_from(name, catalogue.find("models", name))
