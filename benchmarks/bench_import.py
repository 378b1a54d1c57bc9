"""Time to import the library, next to a bare interpreter and to the import of numpy, in one run.

Run: python -m pytest benchmarks/bench_import.py --benchmark-columns=min,median,rounds -q
Not part of the test suite: it needs pytest-benchmark. Goal: at most 100 ms over the bare interpreter.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("code", ["pass", "import scaling_lib", "import numpy"])
def test_start(benchmark: Callable[..., Any], code: str) -> None:
    """Wall time of a fresh interpreter that runs one line."""
    benchmark.group = "start of an interpreter"  # type: ignore[attr-defined]
    command = [sys.executable, "-c", code]
    assert benchmark(subprocess.run, command, check=True).returncode == 0
