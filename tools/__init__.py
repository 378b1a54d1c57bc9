"""The commands behind the Makefile: environment, notebooks, book, verification, lock."""

from __future__ import annotations
