# A fresh machine needs python3 (>= 3.10, with venv), make and a C++ compiler; the targets install the rest into .venv.
# Real weights and labels, where there are any, are found through the environment variable SELECTRIE_TEST_DATA.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
XLA := .venv-xla
# Where torch without CUDA is found; on Linux the usual index has builds of 3 GB.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
BENCHMARKS := real select decide extract serving page large_sets generation grammar templates evaluation hf_generate transformers_calls lm_eval_hf buckets trie spellings encode tracing startup
TRAINING := PYTHONPATH=tools $(BIN)/python -m embedded_model
BOOKS := $(if $(SELECTRIE_TEST_DATA),--text $(wildcard $(SELECTRIE_TEST_DATA)/text/*.txt))

.DELETE_ON_ERROR:
.PHONY: demo test test-tools test-long test-kernels test-xla mutants check bench bench-xla docs model model-last wheel clean

demo: $(VENV)/installed
	$(BIN)/selectrie select -p "The capital of France is" -c " Paris" -c " London" -c " Rome" -c " Berlin"
	$(BIN)/selectrie select -p "Q: Which city in the United States comes to mind? A:" -c " Chicago" -c " New Zealand" --explain

test: $(VENV)/installed $(VENV)/extras-tried
	$(BIN)/python -m pytest --ignore=tests/tools

test-tools: $(VENV)/installed $(VENV)/extras-tried
	$(BIN)/python -m pytest tests/tools
	$(BIN)/python -m pytest tests/meta tests/page -m long

# Tests that passed on these sources are recorded in build/sweeps and not run again; SWEEP=name runs one sweep. Those of XLA
# are called xla_… After the sweeps each law of the default run is tried on four times as many examples.
test-long: $(VENV)/installed $(VENV)/extras-tried
ifeq ($(filter xla_%,$(SWEEP)),)
	$(MAKE) build/clients || echo "# clients of others cannot be installed; the tests with them are skipped" >&2
	$(BIN)/python tools/llama_server.py >/dev/null || echo "# llama-server cannot be built; the tests on it are skipped" >&2
	$(BIN)/python -m pytest --hypothesis-profile=long --sweeps $(if $(SWEEP),--sweep $(SWEEP))
endif
ifeq ($(SWEEP),)
	$(BIN)/python -m pytest --hypothesis-profile=long -m 'hypothesis and not long' --ignore=tests/tools
	$(MAKE) test-xla
endif
ifeq ($(filter-out xla_%,$(SWEEP)),)
	$(MAKE) $(XLA)/installed
	$(XLA)/bin/python -m pytest tests/backends/xla --hypothesis-profile=long --sweeps $(if $(SWEEP),--sweep $(SWEEP))
endif

# jax and torchax want versions of their own, so they have a place of their own; elsewhere these tests are skipped by name.
test-xla: $(XLA)/installed
	$(XLA)/bin/python -m pytest tests/backends/xla tests/tools/test_benchmarks.py::test_buckets_measures_all_that_it_promises

# The same suite on builds of llama.cpp with other kernels; TESTS="tests/backends -x" runs a part of it.
test-kernels: $(VENV)/installed $(VENV)/extras-tried
	$(BIN)/python tools/kernels.py $(TESTS)

# 300 changes of the sources, drawn with a fixed seed, each against the tests that reach it. It goes on where it was interrupted.
mutants: $(VENV)/installed $(VENV)/extras-tried
	$(BIN)/python tools/mutants.py $(MUTANTS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/meta/test_layers.py tests/meta/test_imports.py

bench: $(VENV)/installed
	@missed=; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || missed="$$missed $$name"; done; \
	    test -z "$$missed" || { echo "# a target missed, or not run:$$missed" >&2; exit 1; }

bench-xla: $(XLA)/installed
	$(XLA)/bin/python benchmarks/buckets.py

# The pages as a site: build/docs/index.html. A broken link, or a public name that no page describes, is an error.
SPHINX = $(BIN)/sphinx-build -c docs -d build/docs-trees -qnW --keep-going
docs: $(VENV)/docs-installed
	$(SPHINX) -b html . build/docs
	$(SPHINX) -b coverage . build/docs-coverage

# What benchmarks/templates.py compares with. It wants another llguidance than selectrie's extra does, so it has a place of its own.
build/guidance: pyproject.toml
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --disable-pip-version-check --quiet 'pip>=25.1'  # the first that knows dependency groups
	$@/bin/python -m pip install --disable-pip-version-check --quiet --group bench
	@touch $@

# Clients of OpenAI's API, which long tests run unchanged on our server. They agree with each other on few versions, so they have a place of their own.
build/clients: pyproject.toml
	rm -rf $@
	$(PYTHON) -m venv $@
	{ $@/bin/python -m pip install --disable-pip-version-check --quiet 'pip>=25.1' && \
	    $@/bin/python -m pip install --disable-pip-version-check --quiet --group clients; } || { rm -rf $@; exit 1; }
	@touch $@

# Trains the model of src/selectrie/assets anew, in about an hour and a half on two cores; started again, it goes on where it was.
model: $(VENV)/train-installed
	$(TRAINING).corpus
	$(TRAINING).tokenizer
	$(TRAINING).train
	$(TRAINING).export
	$(TRAINING).held_out
	$(TRAINING).evaluate $(BOOKS)
	$(TRAINING).decisions

# Only the last courses, from the file of the courses before them (START; tools/embedded_model/README.md says where it is kept).
model-last: $(VENV)/train-installed
	$(TRAINING).corpus --last
	$(TRAINING).tokenizer --start $(START)
	$(TRAINING).train --last
	$(TRAINING).export
	$(TRAINING).held_out
	$(TRAINING).evaluate $(BOOKS)
	$(TRAINING).decisions

wheel: $(VENV)/installed
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "$(PYTHON) is older than 3.10: make PYTHON=python3.12 …" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "# installing into $(VENV); the first time this compiles llama.cpp, about four minutes on two cores"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[test,dev,hf,server,remote]'
	@touch $@

# The harness with its own model, Ray and readers of data: large, and not to be had everywhere. Without them their tests are skipped by name.
$(VENV)/extras-tried: pyproject.toml $(VENV)/installed
	@echo "# installing lm-evaluation-harness, torch and Ray for the tests that compare with them"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet 'pip>=25.1' && \
	    $(BIN)/python -m pip install --disable-pip-version-check --quiet --group parity --group frames --group page --group docs && \
	    $(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[lm-eval,ray,parquet,pandas,sklearn,tables,plot,test-clients]' || \
	    echo "# they could not be installed; the tests that need them are skipped" >&2
	@touch $@

$(XLA)/installed: pyproject.toml
	@echo "# installing XLA into $(XLA); the first time this compiles llama.cpp, about four minutes on two cores"
	$(PYTHON) -m venv $(XLA)
	$(XLA)/bin/python -m pip install --disable-pip-version-check --quiet --extra-index-url $(TORCH_INDEX) --editable '.[xla,test]'
	@touch $@

$(VENV)/docs-installed: pyproject.toml $(VENV)/installed
	$(BIN)/python -m pip install --disable-pip-version-check --quiet 'pip>=25.1'  # the first that knows dependency groups
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --group docs
	@touch $@

$(VENV)/train-installed: pyproject.toml $(VENV)/installed
	$(BIN)/python -m pip install --disable-pip-version-check --quiet 'pip>=25.1'  # the first that knows dependency groups
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --group train
	@touch $@
