# `make demo` and `make test` are all that a machine with Python 3.11 or later, pip and make
# needs: each makes .venv from requirements.lock first, once (a stamp file says so).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
STAMP := $(VENV)/.installed-$(VERSION)

# Two workers on two cores; each compiles its own programs, so more than four only cost memory.
# A file stays on one worker, and with it the programs and fixtures that its tests share.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses=4 --dist=loadfile

# What a user's shell says about Python and pip must not change what is installed or run.
# (Where packages come from stays the user's choice: the hashes hold whatever the source.)
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS PYTHONOPTIMIZE
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT
export PYTHONNOUSERSITE := 1
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test slow faults mutants browser smoke lint lock clean

help:  ## show these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s  %s\n", $$1, $$2}' Makefile
	@echo "Another Python: make test PYTHON=python3.12"

demo: $(STAMP)  ## train four schemes, draw seven curves into runs/seven_schemes (about ten minutes)
	$(BIN)/python study.py --config=configs/studies/seven_schemes.py --workdir=runs/seven_schemes

test: $(STAMP)  ## run the tests
	$(PYTEST)

slow: $(STAMP)  ## run the tests left out of `make test`: marked slow or network
	$(PYTEST) -m "slow or network" || test $$? -eq 5  # 5: no test is marked so

faults: $(STAMP)  ## kill, fill, damage and mistype, half an hour: nothing may be lost (docs/reliability.md)
	$(BIN)/python tests/faults/run.py

mutants: $(STAMP)  ## put in every fault of tests/faults/mutants: the tests must see each
	$(BIN)/python tests/faults/mutants/run.py

browser: $(STAMP)  ## try the pages in Chromium (/usr/bin/chromium and chromedriver, as Debian has them)
	$(BIN)/python -m pytest -n 0 -m browser

smoke: $(STAMP)  ## a tiny study from training to pictures, thrown away afterwards
	work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
	$(BIN)/python study.py --config=configs/studies/smoke.py --workdir="$$work/smoke"

lint: $(STAMP)  ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

# Keeps every locked version that the ranges still allow; to renew a package, delete its lines
# from requirements.lock first. One resolution from Python 3.11 upwards, for every platform.
lock:  ## write requirements.lock anew from requirements-dev.txt
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet "uv>=0.13,<0.14"
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
		--fork-strategy fewest --generate-hashes --custom-compile-command "make lock" \
		--output-file requirements.lock requirements-dev.txt
	rm -rf $(VENV)-lock

clean:  ## remove .venv and the tools' caches (runs/ and cache/ stay)
	rm -rf $(VENV) $(VENV)-lock .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	"Lengthwise needs Python 3.11 or later, and $(PYTHON) is $(or $(VERSION),not found): name one, as in make test PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip check
	touch $@
