"""Bytes per parameter of the training recipes."""

from __future__ import annotations

import pytest

from scaling_lib.precision import BYTES, RECIPES, recipe


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("bf16", 16),  # 2 + 2 + 4 + 4 + 4
        ("megatron", 18),  # gradients in fp32
        ("no-master", 12),
        ("no-master-no-grads", 10),
        ("adam-8bit", 10),
        ("two-grads", 20),
        ("fp32", 16),
    ],
)
def test_totals(name: str, total: float) -> None:
    assert recipe(name).total == total


def test_every_recipe_is_tested_and_consistent() -> None:
    assert set(RECIPES) == {"bf16", "megatron", "no-master", "no-master-no-grads", "adam-8bit", "two-grads", "fp32"}
    for r in RECIPES.values():
        assert r.optimizer == r.master + r.adam_m + r.adam_v
        assert r.grad_wire in (2, 4)


def test_elements() -> None:
    assert BYTES == {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5}


def test_an_unknown_recipe_lists_near_ones() -> None:
    with pytest.raises(ValueError, match="unknown recipe 'adam8': did you mean adam-8bit"):
        recipe("adam8")
