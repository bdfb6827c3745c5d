"""The choice of a strategy: by what is asked for, what the query allows, the refresh_policy and the cost. No Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deferred.log.context import Context
from deferred.log.file_changes import FileRange
from deferred.maintenance import costs, strategies
from deferred.maintenance.base_logs import Logs
from deferred.maintenance.costs import Situation, TableSize
from deferred.maintenance.definition import Definition
from deferred.maintenance.strategies import CHECKED, INCREMENTAL, RECOMPUTE, SELF, choose
from deferred.metadata import Declared, Filling, Metadata, RememberedDefinition, TableRecord
from deferred.options import ViewOptions
from deferred.spark.engine import Engine
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

    name = "v"

    def __init__(self, refresh_policy: str, location: str = "", filled: Filling | None = None) -> None:
        self.options = ViewOptions(refresh_policy=refresh_policy)
        self.location = location
        self.columns = TABLE.columns
        self.definition = RememberedDefinition(filled=filled)


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


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Any]:
    """A warehouse whose table t has a million rows; the view holds one."""
    write_deltalake(tmp_path / "v" / "mv", pa.table({"a": [1]}))
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        yield Context(metadata, Engine(), str(tmp_path))


def costs_of(context: Any, changed: int, rows: int | None = 1_000_000, **view: Any) -> strategies.Choice:
    """The choice of an auto view after so many changed rows of a table with so many."""
    given: Any = View("auto", f"{context.root}/v", **view)
    with pytest.MonkeyPatch.context() as patch:
        size = None if rows is None else {"t": TableSize(rows, 10 * rows)}
        patch.setattr(costs, "sizes", lambda context, definition: size)
        return choose(context, given, PLAIN, Logs({}, {"t": changed}))


@pytest.mark.parametrize(
    ("policy", "changed", "there", "chosen"),
    [
        ("auto", 1_000, True, SELF),
        ("auto", 900_000, True, CHECKED),
        ("auto", 900_000, False, SELF),
        ("incremental", 900_000, True, SELF),
    ],
)
def test_a_view_without_base_tables_is_recomputed_if_that_costs_less(
    context: Any, monkeypatch: pytest.MonkeyPatch, policy: str, changed: int, there: bool, chosen: Any
) -> None:
    class Source:
        def __init__(self, *_: Any) -> None:
            self.log = self

        def missing_now(self) -> str | None:
            return None if there else "part-0.parquet"

    monkeypatch.setattr(costs, "sizes", lambda context, definition: {"t": TableSize(1_000_000, 10_000_000)})
    monkeypatch.setattr(strategies, "source_of", Source)
    given: Any = View(policy, f"{context.root}/v")
    promised = replace(PLAIN, declared=Declared({"t": ("a",)}, {}))
    choice = choose(context, given, promised, Logs({}, {"t": changed}))
    assert choice.strategy is chosen
    assert choice.costs.keys() == ({"self", "full"} if policy == "auto" else set())


def record(context: Any, strategy: str, model: float, actual: float) -> None:
    operations = context.metadata.operations
    name = uuid.uuid4().hex
    operations.start(kind="propagate", operation_id=name, view="v")
    operations.finish(
        name, "succeeded", strategy=strategy, details={"cost": {strategy: {"model": model}, "actual": actual}}
    )


def test_auto_compares_costs(context: Any) -> None:
    few, many = costs_of(context, 1_000), costs_of(context, 900_000)
    assert few.strategy is INCREMENTAL
    assert many.strategy is RECOMPUTE
    assert many.reason.startswith("900000 changed rows are expected to take")
    for choice in (few, many):
        assert choice.costs.keys() == {"incremental", "full"}
        assert all(cost.rows > 0 and cost.seconds == cost.model > 0 for cost in choice.costs.values())
    assert many.costs["incremental"].rows == 900_000
    assert many.costs["full"].bytes > 10_000_000


@pytest.mark.parametrize("rows", [10_000, None])
def test_small_tables_and_unknown_ones_are_not_compared(context: Any, rows: int | None) -> None:
    choice = costs_of(context, 1_000_000, rows)
    assert choice.strategy is INCREMENTAL
    assert not choice.costs


def test_what_it_took_before_corrects_the_model(context: Any) -> None:
    before = costs_of(context, 1_000)
    for _ in range(3):
        record(context, "incremental", 1.0, 4.0)
    record(context, "incremental", 1.0, 400.0)  # once, the machine was busy
    record(context, "failed", 0.0, 1.0)
    after = costs_of(context, 1_000)
    assert after.costs["incremental"].seconds == pytest.approx(4 * before.costs["incremental"].seconds)
    assert after.costs["incremental"].model == before.costs["incremental"].model
    assert after.costs["incremental"].reason == "by 4 earlier operations"
    assert after.costs["full"] == before.costs["full"]
    for _ in range(9):
        record(context, "incremental", 1.0, 1000.0)
    assert costs_of(context, 1_000).costs["incremental"].seconds == pytest.approx(
        5 * before.costs["incremental"].seconds
    )


def test_creation_tells_what_a_recomputation_takes(context: Any) -> None:
    plain = costs_of(context, 1_000).costs["full"]
    filled = costs_of(context, 1_000, filled=Filling(0.75, 1.5)).costs["full"]
    assert (filled.seconds, filled.reason) == (0.5 * plain.seconds, "by the view's creation")
    first = costs_of(context, 1_000, filled=Filling(3.0, 1.5)).costs["full"]  # perhaps while its session started
    assert first.seconds == costs.CREATED * plain.seconds
    record(context, "full", 1.0, 3.0)
    again = costs_of(context, 1_000, filled=Filling(3.0, 1.5)).costs["full"]
    assert (again.seconds, again.reason) == (3 * plain.seconds, "by 1 earlier operation")


JOINED = "SELECT t.a, u.b FROM t JOIN u ON t.a = u.a"


def test_files_without_a_changed_key_are_not_counted(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten million rows of u in ten files of 100 keys each, and changes of t with a few keys."""
    tables = {"t": ("t", TABLE.columns), "u": ("u", (("a", "int"), ("b", "int")))}
    types = Types(no_engine)
    schemas = dict(tables.values())
    records = {name: replace(TABLE, id=n, name=name) for n, name in enumerate(tables)}
    definition = Definition(JOINED, bind(JOINED, lambda path: tables[path[0]], types), records, schemas, {}, types)
    files = [{"min.a": 100 * n, "max.a": 100 * n + 99, "num_records": 1_000_000} for n in range(10)]
    sizes = {"t": TableSize(50, 500), "u": TableSize(10_000_000, 80_000_000)}

    class Source:
        def __init__(self, *_: Any) -> None:
            self.log = self

        def files(self, most: int) -> list[dict[str, Any]]:
            return files

    monkeypatch.setattr(costs, "source_of", Source)

    def scanned(*keys: int | None, local: bool = True, ranges: tuple[FileRange, ...] = ()) -> int:
        """Millions of rows of u, by the keys of changed rows or by the ranges of the files that hold them."""
        changes = {"t": pa.table({"a": pa.array(keys, pa.int32())})} if local else {}
        view: Any = View("auto")
        logs = Logs({}, {"t": len(keys)}, changes, {"t": ranges})
        cost = INCREMENTAL.cost(Situation(context, view, definition, sizes, logs))
        assert cost.bytes == 8 * (cost.rows - len(keys))
        return (cost.rows - len(keys)) // 1_000_000

    assert scanned(5, 7) == 1
    assert scanned(5, 950) == 2
    assert scanned(None) == 0
    assert scanned(*range(0, 1000, 10)) == 10
    assert scanned(5, local=False) == 10
    within, below, unknown = FileRange({"a": 310}, {"a": 390}), FileRange({"a": 0}, {"a": 5}), FileRange({}, {})
    assert scanned(5, local=False, ranges=(within,)) == 1
    assert scanned(5, local=False, ranges=(within, below, within)) == 2
    assert scanned(5, local=False, ranges=(within, unknown)) == 10


def test_a_strategy_says_what_it_reads_and_runs() -> None:
    assert INCREMENTAL.reads(PLAIN)[-1].strip().startswith("table")
    assert "changes of t" in INCREMENTAL.sql(PLAIN)
    assert RECOMPUTE.sql(WHOLE) == "SELECT a FROM t"
    assert RECOMPUTE.equations(WHOLE) == ("▼V = MV ∸ Q", "▲V = Q ∸ MV")
