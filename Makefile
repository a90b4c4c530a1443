# `make demo` and `make test` do all the set-up themselves, in a virtual environment of their own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SERVERS ?= .venv-servers
CONVERTERS ?= .venv-converters
INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt
PIP := $(BIN)/python $(INSTALL)

# as many test processes as cores, each with one thread: far quicker than the other way round
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

.PHONY: demo docs test test-browser test-docs test-interop test-package test-ray test-remote test-slow test-all check bench clean

demo: $(VENV)/.installed
	$(BIN)/brusle evaluate --limit 70

test: check
	$(PYTEST) -m "not slow and not remote and not browser and not interop and not docs and not package"

# tests that start Ray share no machine with others, so one after the other
test-ray: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray

# against inference servers that other people wrote, which must be there
test-remote: $(VENV)/.installed-dev $(SERVERS)/mlserver/.installed $(SERVERS)/kserve/.installed $(SERVERS)/triton/.installed
	BRUSLE_TEST_SERVERS=$(SERVERS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m remote

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m "slow and not ray and not remote and not browser and not interop and not docs and not package"

# pages as people see them, in Chromium, which Debian's package brings where there is none
test-browser: $(VENV)/.installed-browser
	@command -v chromium >/dev/null || test -n "$$BRUSLE_TEST_CHROMIUM" || \
		{ apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser

# inside other people's libraries, and with their models, data and trackers
# WeasyPrint draws with Pango, and what it has drawn is read again
test-interop: $(VENV)/.installed-interop $(CONVERTERS)/.installed
	@{ ldconfig -p | grep -q libpangoft2-1.0 && command -v pdftotext >/dev/null; } || \
		{ apt-get update -qq && apt-get install -y -qq libpango-1.0-0 libpangoft2-1.0-0 poppler-utils >/dev/null; }
	BRUSLE_TEST_CONVERTERS=$(CONVERTERS) $(PYTEST) -m "interop and not ray"

# the wheel, in an environment where nothing else is
test-package: $(VENV)/.installed-package
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m package

# what the documentation says, block by block
test-docs: $(VENV)/.installed-docs
	$(PYTEST) -m docs

test-all: test test-slow test-ray test-remote test-browser test-interop test-package test-docs

# the documentation as a site, in site/; fails if a link leads nowhere or a page would need a network
docs: $(VENV)/.installed-docs
	$(BIN)/python tools/make_site.py

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/tracing.py
	$(BIN)/python benchmarks/runtimes.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/effectiveness.py
	$(BIN)/python benchmarks/gates.py
	$(BIN)/python benchmarks/zoo.py
	$(BIN)/python benchmarks/remote.py
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

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	$(PIP) -e ".[dev,browser,docs]"
	@touch $@

$(VENV)/.installed-interop: $(VENV)/.installed-dev
	$(PIP) -e ".[interop]"
	@touch $@

$(VENV)/.installed-package: $(VENV)/.installed-dev
	$(PIP) -e ".[package]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(PIP) -e ".[dev,docs]"
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) -e ".[bench]"
	@touch $@

# each server has an environment of its own; they serve an ONNX file, so none needs torch
$(SERVERS)/mlserver/.installed: SERVER := mlserver==1.7.1
$(SERVERS)/kserve/.installed: SERVER := kserve==0.21.0
# pytriton carries Triton itself, a binary
$(SERVERS)/triton/.installed: SERVER := nvidia-pytriton==0.7.0

$(SERVERS)/%/.installed: constraints.txt Makefile
	$(PYTHON) -m venv $(@D)
	@echo "installing $(SERVER) into $(@D) (about a minute, once) ..."
	$(@D)/bin/python $(INSTALL) $(SERVER) onnxruntime
	@touch $@

# TensorFlow beside ART or TensorBoard changes what they do: it gets an environment of its own
$(CONVERTERS)/.installed: Makefile
	$(PYTHON) -m venv $(@D)
	@echo "installing JAX and TensorFlow into $(@D) (a minute or two, once) ..."
	$(@D)/bin/python $(INSTALL) jax jax2onnx tensorflow-cpu tf2onnx
	@touch $@

clean:
	rm -rf $(VENV) $(SERVERS) $(CONVERTERS) runs build site
