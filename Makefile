# The two commands of the README are `make demo` and `make test`; both make .venv themselves.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs
DEMO := demo-release
DEMO_FILES := $(DEMO) $(DEMO).ledger.jsonl $(DEMO).unfinished $(DEMO).preview.png

.PHONY: install demo test kernels test-kernels test-browser docs lint types layers schema tables clean

install: $(STAMP)

# The version of pip that first knows dependency groups; --group reads them from pyproject.toml.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "privset needs Python 3.11 or newer; say where it is: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --group test --editable ".[hub,tensorboard]"
	@touch $(STAMP)

demo: install
	@rm -rf $(DEMO_FILES) # digits are public: with private records, never delete a ledger like this
	$(BIN)/privset generate digits --epsilon 10 --per-class 10 --out $(DEMO)
	$(BIN)/privset verify $(DEMO)
	$(BIN)/privset evaluate $(DEMO) --data digits --recipe quick --runs 1 --beside real noise
	@echo "The release is in $(DEMO): look at $(DEMO)/preview.png and read $(DEMO)/README.md."

# One thread a worker: two workers on two cores beat one whose threads wait for each other.
test: export OMP_NUM_THREADS = 1
test: install
	$(BIN)/python -m pytest --numprocesses 2

# The kernels of graphics cards, in Triton's interpreter. Kept apart: with it in .venv, a torch for cards could not choose its own.
kernels: .kernels/triton
.kernels/triton: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .kernels "triton==3.6.0"
	@touch .kernels/triton

test-kernels: export OMP_NUM_THREADS = 1
test-kernels: export TRITON_INTERPRET = 1
test-kernels: kernels
	PYTHONPATH=.kernels $(BIN)/python -m pytest --numprocesses 2 $(shell grep -rl TRITON_INTERPRET tests --include='test_*.py')

# The report, in Debian's chromium; installs that (as root, or with sudo), axe-core and Playwright where they are missing.
test-browser: export CHROMIUM ?= /usr/bin/chromium
test-browser: export AXE = .browser/node_modules/axe-core/axe.min.js
test-browser: export OMP_NUM_THREADS = 1
test-browser: install
	tests/browser/install $(BIN)/python $(CHROMIUM) .browser
	$(BIN)/python -m pytest tests/browser

# Warnings are errors; nothing is fetched, neither here nor by whoever opens docs/_build/html/index.html.
docs: $(DOCS_STAMP)
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --quiet --builder html docs docs/_build/html
	@echo "The pages are in docs/_build/html: open index.html."

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	@touch $(DOCS_STAMP)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: install
	$(BIN)/lint-imports

schema: install
	$(BIN)/python -m privset.release.schema > docs/certificate.schema.json

tables: install
	$(BIN)/python -m privset.studies.tables README.md docs/methods/*.md docs/guide/*.md
	$(BIN)/python docs/exhibits.py

clean:
	rm -rf .venv .kernels .browser docs/_build $(DEMO_FILES)
