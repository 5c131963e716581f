# Each command installs what it needs into .venv the first time and starts at once after that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
RUNTIME := $(VENV)/.installed-runtime
INSTALLED := $(VENV)/.installed
METAWORLD := $(VENV)/.installed-metaworld
MANISKILL := $(VENV)/.installed-maniskill
DOCS := $(VENV)/.installed-docs

.PHONY: help demo test fuzz lint docs install metaworld maniskill browser clean
.DEFAULT_GOAL := help

help:
	@echo "make demo        see the system work on the built-in task"
	@echo "make metaworld   add the simulator Meta-World (MuJoCo)"
	@echo "make maniskill   add the simulator ManiSkill (SAPIEN), and a software Vulkan driver if the machine has none"
	@echo "make test        run the tests; those of a simulator where it is installed"
	@echo "make browser     find a Chromium for the tests of web pages, or install one"
	@echo "make fuzz        try broken files, configs and commands: SECONDS=600 SEED=3, or one case: CASE=configs:3:17"
	@echo "make lint        check style and types"
	@echo "make docs        build the documentation with an API reference: build/docs/index.html"

install: $(INSTALLED)

$(RUNTIME): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rewardlab needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt -e .
	@touch $@

# What tests, linting and the optional parts that tests run need is not needed by the demo.
$(INSTALLED): $(RUNTIME)
	@echo "Adding what the tests need to $(VENV) (once) ..."
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

metaworld: $(METAWORLD)

$(METAWORLD): $(INSTALLED)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || \
		{ echo "Meta-World needs Python 3.11 to 3.13; $(VENV) has $$($(BIN)/python --version). Try: make clean; make PYTHON=python3.12 metaworld"; exit 1; }
	@echo "Adding Meta-World to $(VENV) ..."
	@$(PIP) install -c constraints.txt -e '.[dev,metaworld]'
	@$(BIN)/python -m rewardlab.envs.install_gl
	@touch $@

maniskill: $(MANISKILL)

# Where ManiSkill's motion planner has no build, the extra brings all but ManiSkill itself: hence the second line.
# SAPIEN brings opencv-python, whose cv2/ overwrites that of opencv-python-headless and needs libGL: headless goes last.
$(MANISKILL): $(INSTALLED)
	@echo "Adding ManiSkill to $(VENV) (some minutes) ..."
	@$(PIP) install -c constraints.txt -e '.[dev,maniskill]'
	@$(PIP) install -c constraints.txt --no-deps mani_skill
	@$(PIP) install -c constraints.txt --no-deps --force-reinstall opencv-python-headless
	@$(BIN)/python -m rewardlab.envs.maniskill.install_driver
	@touch $@

browser: $(INSTALLED)
	@$(BIN)/python tests/web/browser.py

demo: $(RUNTIME)
	@$(BIN)/rewardlab demo

# A few processes (tests/conftest.py says how many), with one thread each: the networks of the tests are tiny. Where a test
# asks for more, threads that wait must not keep the cores from the others. `make test PYTEST_ARGS="-k words"` runs some.
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

# Broken links are errors. No pages or fonts are fetched; a browser finds words in it only if it is served.
docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/docs/index.html; with search: $(BIN)/python -m http.server --directory build/docs"

$(DOCS): $(INSTALLED)
	@echo "Adding MkDocs to $(VENV) ..."
	@$(PIP) install -c constraints.txt -e '.[dev,docs]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
