# Everything starts from a fresh clone; tools/setup.sh makes .venv and the JDK ready and is quick when they are.
.DEFAULT_GOAL := help
.PHONY: help demo airflow test test-airflow tpch lint fuzz clean

N ?= 1000

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see it work: tables, a view, changes, propagate, refresh, verify
	@tools/setup.sh demo
	@.venv/bin/deferred demo

airflow: ## Airflow on the demo data, to look at: prints its address and login, Ctrl-C stops it
	@tools/setup.sh airflow
	@.venv/bin/python -m deferred.airflow

test: lint ## everything that must hold: ruff, mypy, all tests
	.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-airflow: ## the tests on a real Airflow and in a real browser
	@tools/setup.sh test
	DEFERRED_TEST_AIRFLOW=1 .venv/bin/python -m pytest tests/airflow

tpch: ## the 22 TPC-H views through five refreshes of the benchmark
	@tools/setup.sh test
	DEFERRED_TPCH_REFRESHES=5 .venv/bin/python -m pytest -s tests/tpch

lint: ## ruff and mypy
	@tools/setup.sh test
	.venv/bin/python -m ruff check .
	.venv/bin/python -m mypy

fuzz: ## N random views and changes against recomputation: make fuzz N=5000
	@tools/setup.sh test
	.venv/bin/python -m tests.fuzz --n $(N)

clean: ## remove .venv, caches and what tests left behind
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
