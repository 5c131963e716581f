# Each command installs what it needs into .venv the first time and starts at once after that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test fuzz lint install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   see the system work on the built-in task"
	@echo "make test   run the tests"
	@echo "make fuzz   try broken files, configs and commands: SECONDS=600 SEED=3, or one case: CASE=configs:3:17"
	@echo "make lint   check style and types"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rewardlab needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/rewardlab demo

# One process per core, with one thread each: the networks of the tests are tiny. Where a test asks for more, threads that
# wait must not keep the cores from the others. `make test PYTEST_ARGS="-k words"` runs some of the tests.
test: $(INSTALLED)
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# Each target gets its share of the seconds. A case that fails is kept in fuzz_failures/, and printed with its name.
SECONDS := 300
SEED := 0
fuzz: $(INSTALLED)
	@FUZZ_SECONDS=$(SECONDS) FUZZ_SEED=$(SEED) FUZZ_CASE=$(CASE) OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest tests/fuzz -s $(PYTEST_ARGS)

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
