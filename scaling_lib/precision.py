"""Precision: bytes of an element, and the bytes per parameter that a training recipe keeps."""

from __future__ import annotations

from dataclasses import dataclass

from scaling_lib.catalogue import CatalogueError, near

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5}


@dataclass(frozen=True)
class Recipe:
    """Bytes per parameter that stay resident between steps, each row by itself.

    grad_wire: bytes per gradient element when it is reduced across chips.
    """

    name: str
    title: str
    weights: float
    grads: float
    master: float
    adam_m: float
    adam_v: float
    grad_wire: float

    @property
    def optimizer(self) -> float:
        """Bytes per parameter of master copy and both moments."""
        return self.master + self.adam_m + self.adam_v

    @property
    def total(self) -> float:
        """Bytes per parameter of the whole training state."""
        return self.weights + self.grads + self.optimizer


RECIPES = {
    r.name: r
    for r in (
        Recipe("bf16", "bf16 with fp32 Adam, bf16 gradients", 2, 2, 4, 4, 4, 2),
        Recipe("megatron", "bf16 with fp32 Adam, fp32 gradients", 2, 4, 4, 4, 4, 4),
        Recipe("no-master", "bf16 with fp32 moments, no master copy", 2, 2, 0, 4, 4, 2),
        Recipe(
            "no-master-no-grads", "bf16 with fp32 moments, no master copy, gradients consumed at once", 2, 0, 0, 4, 4, 2
        ),
        Recipe("adam-8bit", "bf16 with 8-bit moments and a master copy", 2, 2, 4, 1, 1, 2),
        Recipe("two-grads", "bf16 with fp32 Adam, bf16 and fp32 gradients both kept", 2, 6, 4, 4, 4, 2),
        Recipe("fp32", "fp32 throughout", 4, 4, 0, 4, 4, 4),
    )
}


def recipe(name: str) -> Recipe:
    """A recipe by name. Raises CatalogueError that lists near names."""
    if name not in RECIPES:
        raise CatalogueError(f"unknown recipe {name!r}: {near(name, RECIPES)}")
    return RECIPES[name]
