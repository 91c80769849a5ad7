# Each command is enough on a fresh Debian or Ubuntu with python3, python3-venv and make:
#   make quick   before a commit: style, spelling, sizes, and the tests of what changed
#   make format  mend style, order of imports and spelling
#   make test    every test, doctest and snippet on the CPU (or the GPU, if there is one)
#   make fuzz    calls drawn at random, an hour at most; SEED=… for others
#   make serve   the site on http://127.0.0.1:8000

PYTHON ?= python3
PY := .venv/bin/python
SEED ?= 0
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
export NO_MKDOCS_2_WARNING = 1

TEXTS = README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs examples src tests tools
PYTEST = $(PY) -m pytest --numprocesses=auto --dist=worksteal

.PHONY: serve build test fuzz quick format size regenerate lint clean

serve: .venv/.docs
	$(PY) -m mkdocs serve

build: .venv/.docs
	$(PY) -m mkdocs build --strict

test: .venv/.test
	$(PYTEST)

fuzz: .venv/.test
	TRITON_INTERPRET=1 PYTHONPATH=src:tests $(PY) tests/fuzz.py eager operators --seed $(SEED)
	TRITON_INTERPRET=0 PYTHONPATH=src:tests $(PY) tests/fuzz.py compiled dtensor trl transformers --seed $(SEED)

quick: .venv/.test size
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .
	$(PY) -m codespell_lib $(TEXTS)
	$(PYTEST) -q -m "not slow" $$($(PY) tests/changed.py)

format: .venv/.test
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(PY) -m codespell_lib -w $(TEXTS)

size:
	$(PYTHON) .ci/size.py

# All committed files that follow from the code. Chromium draws the figures; what each Triton makes
# of the kernels (compiled.json) is of four releases, and comes from the workflow `compile`.
regenerate: .venv/.test
	$(PY) -m softmax_bench replay --update
	$(PY) -m softmax_site.computed
	PYTHONPATH=src $(PY) -m softmax_site.figures

lint: .venv/.test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .
	$(PY) -m codespell_lib $(TEXTS)
	$(PY) -m pyright --pythonpath $(PY)

clean:
	rm -rf site .pytest_cache .ruff_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv || { echo "python3-venv is missing: apt install python3-venv"; rm -rf .venv; exit 1; }

.venv/.docs: .venv/bin/python pyproject.toml requirements-docs.txt constraints.txt
	$(PIP) -r requirements-docs.txt
	touch $@

.venv/.test: .venv/bin/python pyproject.toml requirements-docs.txt requirements-test.txt requirements-all.txt constraints.txt
	$(PIP) -r requirements-all.txt
	touch $@ .venv/.docs
