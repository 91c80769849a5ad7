# Each command is enough on a fresh Debian or Ubuntu with python3, python3-venv and make:
#   make quick   before a commit: style, spelling, sizes, unit tests and doctests of the library
#   make format  mend style, order of imports and spelling
#   make test    every test, doctest and snippet on the CPU (or the GPU, if there is one)
#   make serve   the site on http://127.0.0.1:8000

PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
export NO_MKDOCS_2_WARNING = 1

TEXTS = README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs src tests
PYTEST = $(PY) -m pytest --numprocesses=auto --dist=worksteal
QUICK = tests/test_structure.py tests/test_tooling.py src/triton_softmax \
	$(addprefix tests/library/test_, nn.py losses.py dispatch.py way.py)

.PHONY: serve build test quick format size regenerate lint clean

serve: .venv/.docs
	$(PY) -m mkdocs serve

build: .venv/.docs
	$(PY) -m mkdocs build --strict

test: .venv/.test
	$(PYTEST)

quick: .venv/.test size
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .
	$(PY) -m codespell_lib $(TEXTS)
	$(PYTEST) -q -m "not slow" $(QUICK)

format: .venv/.test
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(PY) -m codespell_lib -w $(TEXTS)

size:
	$(PYTHON) .ci/size.py

regenerate: .venv/.test
	TRITON_INTERPRET=1 PYTHONPATH=src:tests $(PY) tests/library/test_choices.py
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
