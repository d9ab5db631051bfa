# Every target works in a fresh clone with Python 3.11+, make and git. No environment need be active, and an active one is ignored.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run install test test-all lint format bench stress docs notebooks dist clean

PYTHON ?= python3
PYTEST_ARGS ?=
VENV := .venv
PY := $(VENV)/bin/python

# Nothing of the caller's environment may leak into ours.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_CONSTRAINT PIP_REQUIRE_VIRTUALENV
# Without bytecode every process would compile all of JAX's source again.
unexport PYTHONDONTWRITEBYTECODE
# Use the pyright that constraints.txt names, and do not look for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# The tests spend most of their time in XLA's compiler, which these make two to three times faster: the options with which
# bisaddle compiles its own small programs. `make test-all` takes XLA as it is.
LIGHT_XLA := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
  --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

# Real data, when it lies beside the clone.
ifndef BISADDLE_DATA
ifneq ($(wildcard ../shared/data),)
export BISADDLE_DATA := $(shell cd ../shared/data && pwd)
endif
endif

# One stamp for each state of the environment. An install that did not end leaves BUSY behind, and a moved clone a HOME that
# is not here: either way the environment cannot be trusted, and the next make builds it again.
STAMPS := $(VENV)/.stamps
CREATED := $(STAMPS)/created
CLI := $(STAMPS)/cli
ALL := $(STAMPS)/all
DOCS := $(STAMPS)/docs
RELEASE := $(STAMPS)/release
BUSY := $(STAMPS)/busy
HOME_IS := $(STAMPS)/home
ifneq ($(wildcard $(VENV)),)
ifneq ($(shell test ! -e $(BUSY) && test "$$(cat $(HOME_IS) 2>/dev/null)" = "$$(pwd)" && $(PY) -c 'print("sound")' 2>/dev/null),sound)
BROKEN := broken
endif
endif

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

run: $(CLI) ## run the paper's experiments in their quick form: table, figures, results/report.html
	@$(PY) -m bisaddle reproduce --quick

install: $(ALL) ## leave .venv with the package and all extras

test: $(ALL) ## run the tests, without the slow ones (PYTEST_ARGS="-k simplex" adds options)
	@XLA_FLAGS="$(LIGHT_XLA) $(XLA_FLAGS)" $(PY) -m pytest -n 2 --dist worksteal -m "not slow" $(PYTEST_ARGS)

test-all: $(ALL) ## run every test, with XLA's compiler as it is
	@$(PY) -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

lint: $(ALL) ## check style, format and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyright

format: $(ALL) ## sort imports, mend what ruff can mend, format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: $(ALL) ## time the compiled loop against C and NumPy, and the sets against their alternatives, as ratios
	@$(PY) benchmarks/loop.py
	@$(PY) benchmarks/sets.py

stress: $(ALL) ## try to break certificates, runs and files, and count: under 20 minutes (STRESS="attacks" for one part)
	@$(PY) -m benchmarks.stress $(STRESS)

docs: $(DOCS) ## write the pages that are made from the code, then build the site into site/, offline and strictly
	@for page in sets methods architecture api; do $(PY) docs/make_$$page.py || exit 1; done
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "The site begins at site/index.html; it needs no server and no network."

notebooks: $(ALL) ## run the notebooks of docs/notebooks anew and write their pages, with what they print and draw
	@$(PY) docs/make_notebooks.py

dist: $(RELEASE) ## build wheel and sdist into dist/, check both, and try the wheel in an environment of its own
	@rm -rf dist build
	@$(PY) -m build --outdir dist . > dist.log 2>&1 || { cat dist.log >&2; exit 1; }
	@rm dist.log
	@$(PY) -m twine check --strict dist/*
	@$(PY) tests/try_wheel.py dist

clean: ## remove the environment and everything generated
	rm -rf $(VENV) results site build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call pip_install,extras,what is said meanwhile); --no-compile: bytecode of the few modules that are used is made when
# they are first imported, that of all of them would take a third of the time
define pip_install
@echo "Installing bisaddle with $(2) into $(VENV) ..."
@touch $(BUSY)
@$(PY) -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt -e ".[$(1)]"
@rm $(BUSY)
endef

$(CREATED): $(BROKEN)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "bisaddle needs Python 3.11 or later, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo not there)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@pwd > $(HOME_IS)
	@touch $@

$(CLI): $(CREATED) pyproject.toml constraints.txt
	$(call pip_install,cli$(comma)plot$(comma)report$(comma)sklearn$(comma)data,what the experiments need)
	@touch $@

$(ALL): $(CREATED) pyproject.toml constraints.txt
	$(call pip_install,cli$(comma)sklearn$(comma)plot$(comma)report$(comma)data$(comma)parquet$(comma)dev,all extras)
	@touch $(CLI) $@

$(DOCS): $(ALL)
	$(call pip_install,docs,what the site needs)
	@touch $@

$(RELEASE): $(ALL)
	$(call pip_install,release,what a release needs)
	@touch $@

comma := ,

.PHONY: broken
broken:
