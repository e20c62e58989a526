# A fresh machine needs python3 (>= 3.10, with venv), make and a C++ compiler; the targets install the rest into .venv.
# Real weights and labels, where there are any, are found through the environment variable SELECTRIE_TEST_DATA.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REAL := $(SELECTRIE_TEST_DATA)/weights/stories260K.gguf
BENCHMARKS := select large_sets generation trie encode startup
DEMO_MODEL := $(if $(and $(SELECTRIE_TEST_DATA),$(wildcard $(REAL))),$(REAL),build/random-wide.gguf)

.DELETE_ON_ERROR:
.PHONY: demo test test-long check bench wheel clean

demo: $(VENV)/installed $(DEMO_MODEL)
	@echo "# model: $(DEMO_MODEL)"
	@case "$(DEMO_MODEL)" in build/*) echo "# its weights are random: the machinery is real, the answer means nothing";; esac
	$(BIN)/selectrie select -m "$(DEMO_MODEL)" -p "Once upon a time there was a little girl. She went to the" \
	    -c " park" -c " park to play" -c " store" -c " kitchen" -c " moon" -c " sword" --following "." --explain

test: $(VENV)/installed
	$(BIN)/python -m pytest

test-long: $(VENV)/installed
	$(BIN)/python -m pytest -m long

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_imports.py

bench: $(VENV)/installed
	@missed=; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || missed="$$missed $$name"; done; \
	    test -z "$$missed" || { echo "# a target missed, or not run:$$missed" >&2; exit 1; }

wheel: $(VENV)/installed
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

build/random-wide.gguf: $(VENV)/installed tools/make_model.py tools/byte_bpe.py tools/random_blocks.py
	$(BIN)/python tools/make_model.py $@ --shape wide --quantisation f32

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "$(PYTHON) is older than 3.10: make PYTHON=python3.12 …" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "# installing into $(VENV); the first time this compiles llama.cpp, about four minutes on two cores"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[test,dev,hf]'
	@touch $@
