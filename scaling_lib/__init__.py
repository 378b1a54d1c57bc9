"""Planning large training runs: every formula of the course, with units, sources and tests.

>>> from scaling_lib import chip, dp
>>> dp.critical_tokens(chip("tpu-v5p").flops("bf16"), 1.8e11)
2550.0
"""

from __future__ import annotations
