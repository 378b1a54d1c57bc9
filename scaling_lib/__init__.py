"""Planning large training runs: every formula of the course, with units, sources and tests.

>>> from scaling_lib import *
>>> h100 = cluster("dgx-h100")
>>> show(dp.critical_tokens(h100.chip.flops("bf16"), h100.egress(8)), "token/chip")
'2,200 tokens/chip'
"""

from __future__ import annotations

from scaling_lib import (
    budget,
    collectives,
    crosspod,
    decide,
    dp,
    ep,
    fsdp,
    hybrid,
    memory,
    pp,
    roofline,
    tp,
    units,
)
from scaling_lib.hardware import chip
from scaling_lib.job import Job, ParallelPlan, with_plan
from scaling_lib.ledger import Ledger, Part
from scaling_lib.library import cluster, load, model
from scaling_lib.model import flops_per_token, n_params, params
from scaling_lib.precision import recipe
from scaling_lib.rules import check
from scaling_lib.units import parse, show

__version__ = "0.1.0"
__all__ = [
    "Job",
    "Ledger",
    "ParallelPlan",
    "Part",
    "budget",
    "check",
    "chip",
    "cluster",
    "collectives",
    "crosspod",
    "decide",
    "dp",
    "ep",
    "flops_per_token",
    "fsdp",
    "hybrid",
    "load",
    "memory",
    "model",
    "n_params",
    "params",
    "parse",
    "pp",
    "recipe",
    "roofline",
    "show",
    "tp",
    "units",
    "with_plan",
]
