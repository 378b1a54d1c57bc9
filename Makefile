# `make` lists the targets. Each of them first makes, or repairs, the environment of its Python version.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done; echo python3)
endif
RUN = $(shell $(PYTHON) tools/environment.py --where 2>/dev/null)

SHELL := /bin/sh
SEED ?= 1
N ?= 10
MINUTES ?= 60

.PHONY: help book serve notebooks exercises drill sheet stale test check lint types fit mutate site lab lock clean env

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo "  Settings: PYTHON=python3.13  PORT=8123  SERVE=0 (book: build only)  CHROMIUM=/path (browser tests)"

book: env  ## build the book and serve it on a loopback port
	@$(RUN) -m tools.book build
ifneq ($(SERVE),0)
	@$(RUN) -m tools.book serve
endif

serve: env  ## serve what was built before
	@$(RUN) -m tools.book serve

notebooks: env  ## execute the chapters whose sources changed: book/src/*.md -> book/*.ipynb
	@$(RUN) -m tools.notebooks

exercises: env  ## write the exercise sheets and solutions from the bank, then execute what changed
	@$(RUN) -m tools.exercises
	@$(RUN) -m tools.notebooks

drill: env  ## questions against the clock, in this terminal
	@$(RUN) -m scaling_lib drill

sheet: env  ## a printable exam and its key in _build: make sheet SEED=7 N=10 MINUTES=60
	@$(RUN) -m scaling_lib sheet --seed $(SEED) -n $(N) --minutes $(MINUTES) --out _build/exams

stale: env  ## say which notebooks do not belong to their sources
	@$(RUN) -m tools.notebooks --check

test: env  ## prove everything: lint, types, tests, notebooks, site, browser
	@$(RUN) -m tools.verify

check: env  ## the quick part of `make test`: lint, types and the tests without notebooks and browser
	@$(RUN) -m tools.verify --quick

lint: env  ## style of the code (ruff)
	@$(RUN) -m ruff check --quiet --output-format concise .

types: env  ## types of the code (mypy, strict)
	@$(RUN) -m mypy

mutate: env  ## mutation run on the formula modules: half an hour; survivors are listed (keeps its own environment)
	@$(RUN) -m venv .cache/mutate && .cache/mutate/bin/python -m pip install -q mutmut==3.8.1 pytest numpy hypothesis pint
	@nice .cache/mutate/bin/mutmut run; nice .cache/mutate/bin/mutmut results

fit: env  ## refit the predictor's constants from the development rows, print errors with each source left out
	@nice $(RUN) -m scaling_lib.fit

site: env  ## only build the book, into _build/html
	@$(RUN) -m tools.book build

print: env  ## make a PDF and an EPUB of the built book, into _build/html/downloads
	@$(RUN) -m tools.print_book

measure: env  ## measure start, moves and weight of the live pages, against their goals
	@$(RUN) -m tools.measure_live

lab: env  ## open the chapters in JupyterLab
	@cd book && ../$(RUN) -m jupyter lab

lock: env  ## renew constraints.txt and environment.yml from pyproject.toml
	@$(RUN) -m tools.lock

clean:  ## delete everything that can be made again
	rm -rf .venv .cache _build .mypy_cache .ruff_cache .pytest_cache .hypothesis mutants

# The check of the interpreter stands here because nothing else can report that there is none.
env:
	@$(PYTHON) -c '' 2>/dev/null || { echo "No usable Python named '$(PYTHON)'. Install Python 3.11 or newer, or name one: PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) tools/environment.py
