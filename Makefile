# `make demo` and `make test` do all the set-up themselves, in a virtual environment of their own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# as many test processes as cores, each with one thread: far quicker than the other way round
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

.PHONY: demo test test-ray test-slow test-all check bench clean

demo: $(VENV)/.installed
	$(BIN)/brusle evaluate --limit 70

test: check
	$(PYTEST) -m "not slow"

# tests that start Ray share no machine with others, so one after the other
test-ray: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m "slow and not ray"

test-all: test test-slow test-ray

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/runtimes.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/effectiveness.py
	$(BIN)/python benchmarks/zoo.py
	$(BIN)/python benchmarks/comparison.py

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing brusle and PyTorch into $(VENV) (a minute or two, once) ..."
	$(PIP) -e .
	@touch $@

# torchattacks, a reference to test against, wants an old requests: it gets a folder of its own
$(VENV)/.installed-dev: $(VENV)/.installed Makefile
	$(PIP) -e ".[dev]"
	$(PIP) --no-deps --upgrade --target $(VENV)/peers torchattacks==3.5.1
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) -e ".[bench]"
	@touch $@

clean:
	rm -rf $(VENV) runs
