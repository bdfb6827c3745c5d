# Every target works in a fresh clone: tools/setup.sh sets up .venv and the JDK, and does nothing if they are ready.
.DEFAULT_GOAL := help
.PHONY: help demo airflow docs dist check test test-airflow tpch lint fuzz stress reliability where lock bench \
  bench-compare bench-report clean errors

SCALE ?= 0.1
SUITES ?= views
REPETITIONS ?= 5
CHECK ?= each
BENCH = $(if $(CASES),--cases $(CASES)) $(if $(CHANGES),--changes $(CHANGES)) $(if $(FRACTIONS),--fractions $(FRACTIONS))

N ?= 1000
SEED ?= 1
MINUTES ?= 3
PURE = .venv/bin/python -m pytest -n 2 -m "not spark and not airflow and not slow"

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## show it working: tables, a view, changes, propagate, refresh, verify
	@tools/setup.sh demo
	@.venv/bin/deferred demo

airflow: ## start Airflow on the demo data: prints its address and login, Ctrl-C stops it
	@tools/setup.sh airflow
	@.venv/bin/python -m deferred.airflow

docs: ## the documentation as a site, in build/site; without a network, and no warning is let through
	@tools/setup.sh test
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict
	@echo "build/site/index.html"

dist: ## build the wheel and the sdist into build/dist, and install the wheel elsewhere to see that it works
	@tools/setup.sh test
	.venv/bin/python -m pytest -q tests/test_packaging.py
	.venv/bin/python -m build --no-isolation --outdir build/dist
	@ls -l build/dist

check: lint ## run this every few minutes: ruff, mypy, all tests without Spark
	$(PURE)

test: lint ## everything that must hold: ruff, mypy, coverage, all tests, those on Spark and on a real Airflow too
	$(PURE) --cov --hypothesis-profile=thorough --durations=15
	.venv/bin/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder -m "spark or airflow or slow" --durations=30

test-airflow: ## only the tests on a real Airflow and in a real browser
	@tools/setup.sh test
	.venv/bin/python -m pytest tests/airflow

tpch: ## the 22 TPC-H views through five refreshes of the benchmark
	@tools/setup.sh test
	DEFERRED_TPCH_REFRESHES=5 .venv/bin/python -m pytest -s tests/tpch

lint: ## ruff and mypy
	@tools/setup.sh test
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m mypy

fuzz: ## N random views and changes against recomputation: make fuzz N=5000
	@tools/setup.sh test
	.venv/bin/python -m tests.fuzz --n $(N)

stress: ## several processes at once on both databases, the history checked: make stress SEED=7 MINUTES=3
	@tools/setup.sh test
	.venv/bin/python -m tests.reliability.stress --seed $(SEED) --minutes $(MINUTES)

bench: ## what views cost: make bench SCALE=1 CASES=three CHANGES=update_together FRACTIONS=0.1,1 SUITES=views,smallest
	@tools/setup.sh test
	.venv/bin/python -m bench run --scale $(SCALE) --suites $(SUITES) --repetitions $(REPETITIONS) --check $(CHECK) $(BENCH)

bench-compare: ## the newest measurement of each thing beside the one before
	.venv/bin/python -m bench compare $(if $(filter command line,$(origin SCALE)),--scale $(SCALE))

errors: ## docs/ERRORS.md, from the classes of errors and examples that are run
	.venv/bin/python -m tools.errors_doc

bench-report: ## docs/PERFORMANCE.md and its plots, from the results
	.venv/bin/python -m bench report

reliability: ## damaged inputs, random views, several processes at once, every operation killed everywhere: the figures
	@tools/setup.sh test
	.venv/bin/python -m tests.reliability.inputs --n 20000
	.venv/bin/python -m tests.fuzz --n $(N)
	.venv/bin/python -m tests.reliability.stress --seed $(SEED) --minutes $(MINUTES)
	.venv/bin/python -m tests.reliability

where: ## one history on a cluster, Spark Connect, PostgreSQL and S3; an executor lost, a full disk: downloads 690 MB once
	@tools/setup.sh test
	.venv/bin/python -m tests.where

LOCK = uv pip compile setup.cfg --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet
lock: ## write requirements/ anew after a change of setup.cfg: every package with its hashes; needs uv
	$(LOCK) --output-file requirements/demo.txt
	$(LOCK) --extra airflow --extra postgres --output-file requirements/airflow.txt
	$(LOCK) --extra airflow --extra postgres --extra dev --output-file requirements/test.txt

clean: ## remove .venv, caches and files that tests have left
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
