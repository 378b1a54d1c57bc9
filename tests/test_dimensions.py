"""The dimension tie: formulas run on quantities with units and must return the dimension they state.

Arguments take the units of the notation table (scaling_lib/data/notation.toml), by name. FLOP, byte, second, token and
USD are independent base units; counts (chips, layers, widths, heads, parameters) have none.

Formulas of the whiteboard fold units into their numbers: in 8DF the 8 holds two bytes an element, in 4BDF the 4 holds
two FLOPs a token and weight. A row therefore names the units that its coefficient hides, as a product of the few
constants below; no other unit can be slipped in. C/W in FLOP/byte is "a number of tokens" only because of them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pint
import pytest

import scaling_lib
from scaling_lib.notation import symbols

UNITS: pint.UnitRegistry[Any] = pint.UnitRegistry(None)
for line in (
    "FLOP = [work]",
    "B = [data]",
    "s = [time]",
    "token = [token]",
    "USD = [money]",
    "param = []",
    "chip = []",
):
    UNITS.define(line)

MATMUL = UNITS("FLOP/token")  # 2 FLOPs a token and weight
ATTENTION = UNITS("FLOP/token**2")  # 4 FLOPs a token, position attended and element of a head
WEIGHT = UNITS("B")  # bytes of a weight or gradient
ACTIVATION = UNITS("B/token")  # bytes of an activation element of one token
ELEMENT = UNITS("1/token")  # elements of an activation, where the bytes of an element are an argument
NONE = UNITS("")

# module.function -> (units its coefficient hides, unit of the result)
ROWS: dict[str, tuple[Any, str]] = {
    "roofline.critical_intensity": (NONE, "FLOP/B"),
    "roofline.mfu_cap": (NONE, ""),
    "roofline.strong_scaling_speedup": (NONE, ""),
    "roofline.forward_flops": (MATMUL, "FLOP"),
    "collectives.all_gather": (NONE, "s"),
    "collectives.reduce_scatter": (NONE, "s"),
    "collectives.all_reduce": (NONE, "s"),
    "collectives.all_reduce_in_network": (NONE, "s"),
    "collectives.all_to_all": (NONE, "s"),
    "collectives.all_to_all_ring": (NONE, "s"),
    "collectives.p2p": (NONE, "s"),
    "collectives.level_gather": (NONE, "s"),
    "collectives.links_passed": (NONE, ""),
    "dp.forward_flops": (MATMUL, "FLOP"),
    "dp.backward_flops": (MATMUL, "FLOP"),
    "dp.t_math": (MATMUL, "s"),
    "dp.t_comms": (WEIGHT, "s"),
    "dp.critical_tokens": (WEIGHT / MATMUL, "token"),
    "dp.max_params": (NONE, "param"),
    "fsdp.forward_t_comms": (WEIGHT, "s"),
    "fsdp.backward_t_comms": (WEIGHT, "s"),
    "fsdp.critical_tokens": (WEIGHT / MATMUL, "token"),
    "fsdp.traffic_ratio": (NONE, ""),
    "fsdp.state_bytes_per_chip": (NONE, "B"),
    "tp.t_math": (MATMUL, "s"),
    "tp.t_comms": (ACTIVATION, "s"),
    "tp.max_degree": (MATMUL / ACTIVATION, ""),
    "tp.critical_d_ff": (ACTIVATION / MATMUL, ""),
    "tp.traffic_over_fsdp": (ACTIVATION / WEIGHT, ""),
    "hybrid.x_opt": ((ACTIVATION / WEIGHT) ** 0.5, ""),
    "hybrid.t_fsdp": (WEIGHT, "s"),
    "hybrid.t_tp": (ACTIVATION, "s"),
    "hybrid.critical_tokens": (WEIGHT * ACTIVATION / MATMUL**2, "token"),
    "crosspod.critical_pod_tokens": (WEIGHT / MATMUL, "token"),
    "budget.train_flops": (MATMUL, "FLOP"),
    "budget.seconds": (NONE, "s"),
    "budget.chip_seconds": (NONE, "s"),
    "budget.mfu": (NONE, ""),
    "budget.hfu": (NONE, ""),
    "budget.cost": (NONE, "USD"),
    "budget.chips_for": (NONE, "chip"),
    "budget.mtbf": (NONE, "s"),
    "budget.checkpoint_interval": (NONE, "s"),
    "budget.goodput": (NONE, ""),
    "budget.spares": (NONE, "chip"),
    "pp.bubble_of_total": (NONE, ""),
    "pp.bubble_of_ideal": (NONE, ""),
    "pp.share_of_total": (NONE, ""),
    "pp.share_of_ideal": (NONE, ""),
    "pp.microbatches_for_bubble": (NONE, ""),
    "pp.ideal_seconds": (NONE, "s"),
    "pp.bubble_1f1b": (NONE, "s"),
    "pp.bubble_interleaved": (NONE, "s"),
    "pp.bubble_zb_h1": (NONE, "s"),
    "pp.bubble_zb_h2": (NONE, "s"),
    "pp.bubble_dualpipe": (NONE, "s"),
    "pp.bubble_dualpipev": (NONE, "s"),
    "pp.total_interleaved_overlap": (NONE, "s"),
    "pp.peak_gpipe": (NONE, ""),
    "pp.peak_1f1b": (NONE, ""),
    "pp.peak_interleaved": (NONE, ""),
    "pp.peak_zb_h1": (NONE, ""),
    "pp.peak_zb_h2": (NONE, ""),
    "pp.peak_v_half": (NONE, ""),
    "pp.peak_v_min": (NONE, ""),
    "pp.peak_dualpipe": (NONE, ""),
    "pp.peak_dualpipev": (NONE, ""),
    "pp.boundary_bytes": (ELEMENT, "B"),
    "cp.kv_bytes": (ELEMENT, "B"),
    "cp.critical_tokens": (ELEMENT / ATTENTION, "token"),
    "ep.exchange_bytes": (ELEMENT, "B"),
    "ep.critical_d_ff_expert": (ELEMENT / MATMUL, ""),
    "memory.min_chips": (NONE, "chip"),
    "memory_activations.checkpoint_bytes": (ELEMENT, "B"),
}
# Arguments that no equation writes with a letter of its own, or that a module names its own way
EXTRA = {"bubble": "s", "ideal": "s", "per_layer": "", "total": "B", "mlp_matrices": "", "ep": ""}
# Functions with an equation that cannot take quantities, each with the reason
EXEMPT = {
    "ep.expert_capacity": "rounds up to whole places and returns an int",
}

UNIT_OF = {name: symbol.unit for symbol in symbols() for name in symbol.names} | EXTRA
FORMULAS = ("roofline", "collectives", "dp", "fsdp", "tp", "hybrid", "crosspod", "pp", "budget")


def is_pure(function: Callable[..., Any]) -> bool:
    """Whether a function takes numbers alone (flags and choices with a default apart)."""
    parameters = inspect.signature(function).parameters.values()
    return all(p.annotation == "Any" or p.default is not p.empty for p in parameters)


def public(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Functions that a module defines for others."""
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: f for name, f in found if f.__module__ == module.__name__ and not name.startswith("_")}


def wanted() -> set[str]:
    """Pure functions of the formula modules, and every pure function anywhere that an equation belongs to."""
    names = set()
    for info in pkgutil.iter_modules(scaling_lib.__path__):
        if info.name.startswith("__"):
            continue
        for name, function in public(importlib.import_module(f"scaling_lib.{info.name}")).items():
            tagged = "Equation:" in (function.__doc__ or "")
            if tagged or (info.name in FORMULAS and is_pure(function)):
                names.add(f"{info.name}.{name}")
    return names


def result(function: Callable[..., Any]) -> Any:
    """The function's value on quantities: argument number k is k + 3 of its unit (1 and 2 would hide powers)."""
    arguments = {}
    for k, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.annotation == "Any":
            assert parameter.name in UNIT_OF, f"no unit for argument {parameter.name!r}: add it to notation.toml"
            arguments[parameter.name] = (k + 3) * UNITS(UNIT_OF[parameter.name] or "dimensionless")
    return function(**arguments) * NONE


def states(function: Callable[..., Any], hidden: Any, unit: str) -> bool:
    """Whether the function returns the unit, given the units its coefficient hides."""
    try:
        return bool((result(function) * hidden).dimensionality == UNITS(unit or "dimensionless").dimensionality)
    except pint.DimensionalityError:  # added or compared unlike things
        return False


@pytest.mark.parametrize("name", ROWS)
def test_the_formula_returns_the_dimension_it_states(name: str) -> None:
    module, _, function = name.partition(".")
    hidden, unit = ROWS[name]
    call = getattr(importlib.import_module(f"scaling_lib.{module}"), function)
    assert states(call, hidden, unit), f"{name} returns {(result(call) * hidden).units}, not {unit or 'a number'}"


def test_every_pure_formula_has_a_row() -> None:
    missing = wanted() - set(ROWS) - set(EXEMPT)
    assert not missing, f"add a row to ROWS in {__file__} for {sorted(missing)}"
    stale = (set(ROWS) | set(EXEMPT)) - wanted()
    assert not stale, f"no such pure formula any more: {sorted(stale)}"


# One slip each, of the kind that keeps the number plausible: a factor lost, a rate on the wrong side, unlike terms.
SLIPS = [
    ("dp", "4 * batch * d_model * d_ff / dp", "4 * d_model * d_ff / dp", "forward_flops"),
    ("dp", "backward_flops(batch, d_model, d_ff, dp) / peak", "backward_flops(batch, d_model, d_ff, dp)", "t_math"),
    ("dp", "return 8 * d_model * d_ff / egress", "return 8 * d_model * d_ff * egress", "t_comms"),
    ("tp", "return 4 * batch * d_model / egress", "return 4 * d_model / egress", "t_comms"),
    ("tp", "return d_ff * axes * egress / peak", "return d_ff * axes * peak / egress", "max_degree"),
    ("fsdp", "n_params * bytes_per_param / chips", "n_params / chips", "state_bytes_per_chip"),
    ("hybrid", "(egress_x / egress_y) * chips) ** 0.5", "(egress_x / egress_y) * chips)", "x_opt"),
    ("hybrid", "peak**2 / (egress_x", "peak / (egress_x", "critical_tokens"),
    ("collectives", "(n * egress) + (n - 1) * hop", "(n * egress) + (n - 1) * egress", "all_gather"),
    ("collectives", "return size / egress + hop", "return size + hop", "p2p"),
    ("roofline", "maximum(t_math / factor, t_comms)", "maximum(factor, t_comms)", "strong_scaling_speedup"),
    ("budget", "(2 * checkpoint * mtbf) ** 0.5", "2 * checkpoint * mtbf", "checkpoint_interval"),
    ("budget", "(interval + checkpoint) / mtbf", "(interval + checkpoint)", "goodput"),
    ("budget", "return chip_seconds * price", "return chip_seconds / price", "cost"),
    ("pp", "return (pp - 1) * (t_F + t_B - t_W)", "return (pp - 1) * (t_F + t_B - 1)", "bubble_zb_h1"),
]


@pytest.mark.parametrize(("stem", "old", "new", "name"), SLIPS)
def test_the_tie_bites(stem: str, old: str, new: str, name: str) -> None:
    source = inspect.getsource(importlib.import_module(f"scaling_lib.{stem}"))
    assert old in source
    slipped = ModuleType(f"scaling_lib.{stem}")
    exec(source.replace(old, new), slipped.__dict__)
    hidden, unit = ROWS[f"{stem}.{name}"]
    assert not states(getattr(slipped, name), hidden, unit)
