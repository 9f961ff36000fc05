# The two commands of the README, and what .ci/run adds. All of them make .venv themselves.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install demo test lint types layers clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "privset needs Python 3.11 or newer; say which with: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --group test --editable ".[hub]"
	@touch $(STAMP)

demo: install
	@rm -rf demo-release demo-release.ledger.jsonl
	$(BIN)/privset generate digits --method psg --preset small --epsilon 10 --per-class 10 --out demo-release
	$(BIN)/privset verify demo-release
	$(BIN)/privset evaluate demo-release --data digits --recipe quick --runs 2 --beside real noise
	@echo "The release is in demo-release; look at demo-release/preview.png and demo-release/README.md."

# One thread a worker: two workers on two cores beat one worker whose threads wait for each other.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: install
	$(BIN)/lint-imports

clean:
	rm -rf .venv demo-release demo-release.ledger.jsonl
