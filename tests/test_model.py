"""Parameter counts and FLOPs to the integer, against published tables and other tools' counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaling_lib.catalogue import CatalogueError
from scaling_lib.library import load
from scaling_lib.library import model as model_or_file
from scaling_lib.model import (
    CONVENTIONS,
    TransformerConfig,
    attention_flops_per_token,
    attention_params,
    flops_per_token,
    matmul_params,
    mlp_params,
    model,
    n_active_params,
    n_params,
    params,
)

# Printed by Megatron-LM's num_floating_point_operations: sequence length, FLOPs a sequence, FLOPs a token
MEGATRON = {
    "gpt-3-175b": (2048, "2.174868359e+15", "1.061947441e+12"),
    "llama-3-8b": (8192, "4.216455294e+14", "5.147040154e+10"),
    "llama-3-70b": (8192, "3.680031058e+15", "4.492225413e+11"),
    "llama-3-405b": (8192, "2.067624744e+16", "2.523955986e+12"),
    "mixtral-8x7b": (4096, "3.264776440e+14", "7.970645606e+10"),
    "deepseek-v3": (4096, "1.023230173e+15", "2.498120540e+11"),
}


@pytest.mark.parametrize(
    ("name", "total", "matmul"),
    [
        ("llama-3-8b", 8_030_261_248, 7_504_658_432),
        ("llama-3-70b", 70_553_706_496, 69_501_714_432),
    ],
)
def test_parameters_to_the_integer(name: str, total: int, matmul: int) -> None:
    assert n_params(model(name)) == total
    assert matmul_params(model(name)) == matmul


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("llama-3-405b", "405.85", "405.85"),
        ("mixtral-8x7b", "46.70", "12.88"),
        ("deepseek-v3", "671.03", "37.55"),
        ("gpt-3-175b", "174.58", "174.58"),
        ("qwen3-235b-a22b", "235.09", "22.19"),
    ],
)
def test_parameters_as_printed_in_billions(name: str, total: str, active: str) -> None:
    config = model(name)
    assert f"{n_params(config) / 1e9:.2f}" == total
    assert f"{n_active_params(config) / 1e9:.2f}" == active


def test_llama_70b_by_hand(llama: TransformerConfig) -> None:
    ledger = params(llama)
    assert ledger["embedding"] == ledger["head"] == 128256 * 8192
    assert attention_params(llama) == 8192 * 8192 + 2 * 8192 * 1024 + 8192 * 8192  # q, k and v, out
    assert mlp_params(llama) == 3 * 8192 * 28672
    assert ledger["layers/attention"] == 80 * 150_994_944
    assert ledger["norms"] == 161 * 8192
    assert ledger.unit == "param"


def test_deepseek_attention_by_hand() -> None:
    # W_DQ, W_UQ (nope + rope), W_DKV + W_KR, W_UK + W_UV, W_O of the report, section 2.1.1
    by_hand = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    config = model("deepseek-v3")
    assert attention_params(config) == by_hand == 187_105_280
    assert params(config)["norms"] == 61 * (2 * 7168 + 1536 + 512) + 7168
    assert params(config)["layers/mlp"] == 3 * 3 * 7168 * 18432
    assert params(config)["layers/shared experts"] == 58 * 3 * 7168 * 2048
    assert params(config)["layers/router"] == 58 * 7168 * 256
    assert config.attention_width == 128 * (192 + 128)


def test_active_counts_only_the_experts_used() -> None:
    config = model("mixtral-8x7b")
    expert = 3 * 4096 * 14336
    assert n_params(config) - n_active_params(config) == 32 * 6 * expert
    assert params(config, active=True)["layers/experts"] == 32 * 2 * expert
    assert config.n_moe_layers == 32
    assert model("llama-3-8b").n_moe_layers == 0


def test_qwen3_norms_count_the_head_norms() -> None:
    assert params(model("qwen3-235b-a22b"))["norms"] == 94 * (2 * 4096 + 2 * 128) + 4096


def test_a_tied_head_is_multiplied_but_not_counted_twice() -> None:
    gpt = model("gpt-3-175b")
    assert [p.name for p in params(gpt)][-1] == "norms"
    assert mlp_params(gpt) == 2 * 12288 * 49152
    assert matmul_params(gpt) == n_params(gpt) - 96 * 2 * 12288 - 12288  # the table is the head


@pytest.mark.parametrize("name", MEGATRON)
def test_flops_as_megatron_prints_them(name: str) -> None:
    seq_len, a_sequence, a_token = MEGATRON[name]
    flops = flops_per_token(model(name), seq_len, "megatron")
    assert f"{flops:.9e}" == a_token
    assert f"{flops * seq_len:.9e}" == a_sequence


@pytest.mark.parametrize("name", ["gpt-3-175b", "llama-3-8b", "llama-3-70b", "llama-3-405b"])
def test_megatron_is_the_causal_count_of_a_dense_model(name: str) -> None:
    assert flops_per_token(model(name), 4096, "megatron") == flops_per_token(model(name), 4096, "causal")


def test_what_megatron_counts_differently() -> None:
    mixtral, deepseek = model("mixtral-8x7b"), model("deepseek-v3")
    router = 32 * 4096 * 8
    assert flops_per_token(mixtral, 4096, "causal") - flops_per_token(mixtral, 4096, "megatron") == 6 * router
    added = 61 * (1536 + 512) - 58 * 7168 * 256
    assert flops_per_token(deepseek, 4096, "megatron") - flops_per_token(deepseek, 4096, "causal") == 6 * added


def test_the_conventions_of_llama_70b(llama: TransformerConfig) -> None:
    assert flops_per_token(llama, 8192, "causal") == 449_222_541_312
    assert flops_per_token(llama, 8192, "full") == 481_434_796_032
    assert flops_per_token(llama, convention="6N") == 6 * 70_553_706_496
    assert flops_per_token(llama, convention="matmul") == 6 * 69_501_714_432
    # torchtitan counts the norms too; picotron adds full attention to 6N
    assert flops_per_token(llama, 8192, "full") + 6 * 161 * 8192 == 481_442_709_504
    assert flops_per_token(llama, convention="6N") + 12 * 80 * 8192 * 8192 == 487_746_748_416
    assert set(CONVENTIONS) == {"6N", "matmul", "causal", "full", "megatron"}


def test_causal_and_full_differ_by_what_the_mfu_differs(llama: TransformerConfig) -> None:
    for config, percent in ((llama, 7.2), (model("llama-3-8b"), 12.5)):
        ratio = flops_per_token(config, 8192, "full") / flops_per_token(config, 8192, "causal")
        assert round(100 * (ratio - 1), 1) == percent


def test_attention_flops_by_hand(llama: TransformerConfig) -> None:
    # per token and layer: scores 2 H h S and values 2 H h S, three passes, half of it when causal
    assert attention_flops_per_token(llama, 8192, causal=False) == 80 * 3 * 2 * (2 * 64 * 128 * 8192)
    assert attention_flops_per_token(llama, 8192) * 2 == attention_flops_per_token(llama, 8192, causal=False)
    lengths = np.array([1024, 8192])
    expected = [flops_per_token(llama, int(s)) for s in lengths]
    np.testing.assert_array_equal(flops_per_token(llama, lengths), expected)


def test_a_convention_that_needs_more(llama: TransformerConfig) -> None:
    with pytest.raises(
        ValueError, match="unknown FLOPs convention '6nd': use one of 6N, matmul, causal, full, megatron"
    ):
        flops_per_token(llama, 8192, "6nd")
    with pytest.raises(ValueError, match="'causal' counts attention: give seq_len in tokens, or use '6N' or 'matmul'"):
        flops_per_token(llama)


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 94,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "topk_group": 4,
    "v_head_dim": 128,
    "vocab_size": 129280,
}


def written(tmp_path: Path, config: dict[str, Any]) -> str:
    folder = tmp_path / "a-model"
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama-3-70b"),
        (QWEN3_MOE, "qwen3-235b-a22b"),
        (MIXTRAL, "mixtral-8x7b"),
        (DEEPSEEK_V3, "deepseek-v3"),
    ],
)
def test_a_config_json_counts_like_the_catalogue(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    read, known = model_or_file(written(tmp_path, config)), model(name)
    assert read.name == "a-model"
    assert params(read).parts == params(known).parts
    assert n_active_params(read) == n_active_params(known)
    assert flops_per_token(read, 4096) == flops_per_token(known, 4096)
    assert read.max_seq_len == known.max_seq_len


def test_groups_that_a_router_keeps_to_are_read(tmp_path: Path) -> None:
    read = model_or_file(written(tmp_path, DEEPSEEK_V3)).moe
    assert read == model("deepseek-v3").moe
    assert read is not None
    assert (read.n_groups, read.groups_per_token) == (8, 4)
    free = model_or_file(written(tmp_path, DEEPSEEK_V3 | {"topk_method": "greedy"})).moe
    assert free is not None
    assert (free.n_groups, free.groups_per_token) == (1, 1)
    other = model("qwen3-235b-a22b").moe
    assert other is not None
    assert (other.n_groups, other.groups_per_token) == (1, 1)


def test_qwen2_has_biases_and_a_tied_head(tmp_path: Path) -> None:
    # 494,032,768 parameters: the size that Qwen/Qwen2.5-0.5B's card and safetensors index give
    read = load(written(tmp_path, QWEN2)).models["a-model"]
    assert n_params(read) == 494_032_768
    assert (read.head_dim, read.qkv_bias, read.tied_embeddings) == (64, True, True)


def test_absent_keys_mean_what_they_mean_to_the_library_that_wrote_them(tmp_path: Path) -> None:
    bare = {k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads", "max_position_embeddings")}
    read = model_or_file(written(tmp_path, bare))
    assert (read.n_kv_heads, read.head_dim, read.max_seq_len) == (64, 128, None)


@pytest.mark.parametrize(
    ("base", "change", "says"),
    [
        (LLAMA, {"model_type": "gpt2"}, ["model_type 'gpt2'", "qwen3_moe", "write a TOML entry"]),
        (LLAMA, {"hidden_size": None}, ["hidden_size is missing", "whole number"]),
        (LLAMA, {"hidden_size": "8192"}, ["hidden_size is '8192'"]),
        (LLAMA, {"num_hidden_layers": 0}, ["num_hidden_layers is 0"]),
        (LLAMA, {"attention_bias": True}, ["attention_bias = True is not counted"]),
        (LLAMA, {"mlp_bias": True}, ["mlp_bias = True"]),
        (QWEN3_MOE, {"decoder_sparse_step": 2}, ["decoder_sparse_step = 2", "only 1"]),
        (QWEN3_MOE, {"mlp_only_layers": [0]}, ["mlp_only_layers = [0]"]),
        (QWEN3_MOE, {"num_experts_per_tok": None}, ["num_experts_per_tok is missing"]),
        (DEEPSEEK_V3, {"moe_layer_freq": 2}, ["moe_layer_freq = 2"]),
        (DEEPSEEK_V3, {"q_lora_rank": None}, ["q_lora_rank is missing"]),
        (DEEPSEEK_V3, {"n_shared_experts": "one"}, ["n_shared_experts is 'one'"]),
        (DEEPSEEK_V3, {"n_group": 7}, ["256 experts do not divide into 7 groups"]),
        (DEEPSEEK_V3, {"topk_group": 9}, ["8 experts from 9 of 8 groups", "at most n_groups"]),
        (DEEPSEEK_V3, {"n_group": 64, "topk_group": 1}, ["8 experts from 1 of 64 groups"]),
        (DEEPSEEK_V3, {"first_k_dense_replace": 62}, ["62 dense layers of 61", "at most n_layers"]),
        (QWEN3_MOE, {"num_experts_per_tok": 129}, ["129 of 128 experts", "experts_per_token from 1"]),
        (LLAMA, {"num_attention_heads": 16384, "head_dim": None}, ["share a width of 8192; state head_dim"]),
        (LLAMA, {"num_key_value_heads": 7}, ["64 heads do not divide into 7"]),
    ],
)
def test_a_config_json_we_cannot_count_is_refused(
    tmp_path: Path, base: dict[str, Any], change: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(CatalogueError) as error:
        model_or_file(written(tmp_path, base | change))
    assert "config a-model" in str(error.value)
    for words in says:
        assert words in str(error.value)


def test_an_unreadable_config_json(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"cannot read .*none\.json.*check the path"):
        model_or_file(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(CatalogueError, match=r"bad\.json is not valid JSON"):
        model_or_file(str(tmp_path / "bad.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(CatalogueError, match="holds no JSON object"):
        model_or_file(str(tmp_path / "list.json"))


def test_an_unknown_model_lists_near_ones() -> None:
    with pytest.raises(CatalogueError, match=r"unknown model 'llama-70b': did you mean .*llama-3-70b"):
        model("llama-70b")
