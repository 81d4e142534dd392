# Everything runs in .venv, made on first use and again only when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2

.PHONY: help install demo test test-slow test-meta test-device test-next check format bench clean

help:
	@echo "make demo         run the digits sweep and say where the report lies"
	@echo "make test         the default suite (under 10 minutes on 2 cores)"
	@echo "make check        lint and types"
	@echo "make test-slow    exhaustive tests (F32_DST=fp16 F32_MODE=CEIL: all 2^32 floats into that)"
	@echo "make test-meta    planted faults must make the suite fail"
	@echo "make test-device  same bits on whatever accelerator JAX sees"
	@echo "make test-next    the default suite on Python 3.12 and the newest JAX, where at hand"
	@echo "make bench        cast benchmarks against copy, astype, pychop and gfloat"

install: $(STAMP)

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,experiments]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/npusim sweep configs/digits_castmodes.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q

test-slow: $(STAMP)
	NPUSIM_F32_DST=$(F32_DST) NPUSIM_F32_MODE=$(F32_MODE) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q -m slow

test-meta: $(STAMP)
	$(BIN)/python -m pytest -q -m meta tests/meta

test-device: $(STAMP)
	NPUSIM_TEST_DEVICE=1 $(BIN)/python -m pytest -q -m device tests/device -rs

test-next:
	@command -v python3.12 >/dev/null || { echo "python3.12 is not at hand: nothing was tested"; exit 1; }
	@test -x .venv-next/bin/python || python3.12 -m venv .venv-next
	.venv-next/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[dev,experiments]'
	.venv-next/bin/python -m pytest -n $(JOBS) --dist worksteal -q

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python experiments/bench/cast.py

clean:
	rm -rf $(VENV) .venv-next .pytest_cache .ruff_cache .hypothesis results
