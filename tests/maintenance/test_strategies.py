"""The choice of a strategy: by what is asked for, what the query allows, the refresh_policy and the cost. No Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from deferred.maintenance import strategies
from deferred.maintenance.base_logs import Logs
from deferred.maintenance.definition import Definition
from deferred.maintenance.strategies import INCREMENTAL, RECOMPUTE, choose
from deferred.metadata import TableRecord
from deferred.options import ViewOptions
from deferred.sql.bind import bind
from deferred.sql.types import Types

TABLE = TableRecord(1, "t", "/t", "feed", None, None, (), {}, (("a", "int"),), 0, datetime(2026, 1, 1, tzinfo=UTC))


def no_engine(sql: str) -> list[tuple[str, str]]:
    raise AssertionError(sql)


def defined(sql: str) -> Definition:
    types = Types(no_engine)
    return Definition(sql, bind(sql, lambda path: ("t", TABLE.columns), types), {"t": TABLE}, {}, {}, types)


class View:
    """Only what a choice looks at."""

    def __init__(self, refresh_policy: str) -> None:
        self.options = ViewOptions(refresh_policy=refresh_policy)


def chosen(policy: str, definition: Definition, **known: Any) -> strategies.Choice:
    context: Any = None  # a source looks at its table only
    view: Any = View(policy)
    return choose(context, view, definition, **known)


PLAIN = defined("SELECT a FROM t")
WHOLE = replace(PLAIN, bound=None, whole="It calls f.")


@pytest.mark.parametrize("policy", ["auto", "incremental", "incremental_strict", "full"])
def test_a_recomputation_that_is_asked_for_is_chosen(policy: str) -> None:
    assert chosen(policy, PLAIN, full=True).strategy is RECOMPUTE


@pytest.mark.parametrize("policy", ["auto", "incremental", "full"])
def test_a_view_without_a_plan_is_recomputed(policy: str) -> None:
    choice = chosen(policy, WHOLE)
    assert choice.strategy is RECOMPUTE
    assert choice.reason.startswith("It calls f. So every propagate recomputes")


def test_the_policy_decides() -> None:
    assert chosen("full", PLAIN).strategy is RECOMPUTE
    assert chosen("incremental", PLAIN).strategy is INCREMENTAL
    assert str(chosen("incremental_strict", PLAIN)) == "incremental"
    assert str(chosen("auto", PLAIN)) == "incremental, or full when much has changed"


@pytest.mark.parametrize(
    ("base_rows", "changed_rows", "strategy"),
    [
        (100_000, 30_000, INCREMENTAL),
        (100_000, 30_001, RECOMPUTE),
        (10_000, 1_000_000, INCREMENTAL),
        (None, 1_000_000, INCREMENTAL),
    ],
)
def test_auto_compares_costs(
    base_rows: int | None, changed_rows: int, strategy: strategies.Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted:
        def row_count(self) -> int | None:
            return base_rows

    monkeypatch.setattr(strategies, "source_of", lambda context, table: Counted())
    assert chosen("auto", PLAIN, logs=Logs({}, {"t": changed_rows})).strategy is strategy


def test_a_strategy_says_what_it_reads_and_runs() -> None:
    assert INCREMENTAL.reads(PLAIN)[-1].strip().startswith("Scan")
    assert "changes of t" in INCREMENTAL.sql(PLAIN)
    assert RECOMPUTE.sql(WHOLE) == "SELECT a FROM t"
    assert RECOMPUTE.equations(WHOLE) == ("▼V = MV ∸ Q", "▲V = Q ∸ MV")
