"""Transactions: several tables, one timestamp, all or nothing for every view, safe to crash in; handed-over logs."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deferred import DeferredError, Warehouse
from deferred.errors import InvalidInputError, InvalidSQLError, TransactionError, UnknownObjectError
from deferred.log.delta_log import DeltaLog
from deferred.maintenance import batch
from tests.engine.support import Death, assert_fresh, bag, commits, dying, dying_after, make, mv, refused, state_of

JOIN = "SELECT r.a, r.s, t.d FROM r JOIN t ON r.a = t.a"


def location(wh: Any, name: str) -> str:
    return next(t.location for t in wh.tables() if t.name == name)


def test_every_kind_of_change_in_one_transaction(tables: Any) -> None:
    wh = tables
    wh.create_view("v", JOIN)
    with wh.transaction() as tx:
        tx.insert("r", [(3, 4, "it's"), {"s": "named", "a": 2}])
        tx.insert("t", wh.spark.sql("SELECT 3 AS a, CAST(9 AS DECIMAL(8,2)) AS d"))
        tx.update("r", {"s": "concat(s, '!')"}, "a = 1")
        tx.delete("t", "d = 1.5")
        tx.sql("MERGE INTO t USING (SELECT 1 AS k) AS n ON t.a = n.k WHEN NOT MATCHED THEN INSERT (a, d) VALUES (1, 7)")
        tx.sql("INSERT INTO t SELECT a + 10, d FROM t WHERE a = 2")
    assert bag(wh.spark.table(f"delta.`{location(wh, 'r')}`")) == {
        (1, 1, "x!"): 2,
        (2, None, "y"): 1,
        (2, None, "named"): 1,
        (3, 4, "it's"): 1,
    }
    wh.refresh("v")
    assert_fresh(wh, "v")
    wh.verify("v")


def test_one_timestamp_and_no_cut_between(tables: Any) -> None:
    wh = tables
    wh.create_view("v", "SELECT 'r' AS origin, a FROM r UNION ALL SELECT 't', a FROM t")
    before = bag(wh.read("v"))
    with wh.transaction() as tx:
        tx.insert("r", [(7, 7, "z")])
        tx.insert("t", [(7, 7)])
        tx.delete("r", "a = 2")
    wh.sync()
    ledger = wh._context.metadata.ledger
    entries = [e for t in wh.tables() if t.kind == "feed" for e in ledger.between(t.id, t.first_version, 99)]
    assert len(entries) == 3
    assert len({e.transaction_id for e in entries}) == 1
    (moment,) = {e.timestamp for e in entries}
    from datetime import timedelta

    wh.refresh("v", until=moment - timedelta(microseconds=1))
    assert bag(wh.read("v")) == before
    wh.refresh("v", until=moment)
    assert_fresh(wh, "v")


def test_a_statement_that_fails_undoes_those_before_it(tables: Any) -> None:
    wh = tables
    for scenario in ("combined", "immediate"):
        wh.create_view(f"v_{scenario}", JOIN, scenario=scenario)
    before = {name: bag(wh.spark.table(f"delta.`{location(wh, name)}`")) for name in ("r", "t")}
    shown = bag(wh.read("v_immediate"))
    with refused(TransactionError, "nothing is changed"), wh.transaction() as tx:
        tx.insert("r", [(1, 9, "new")])
        tx.delete("r", "a = 2")
        tx.update("t", {"a": "5"}, "a = 1")
        tx.update("r", {"b": "CAST(s AS INT)"})  # 'x' is no number: known only when it runs
    assert {name: bag(wh.spark.table(f"delta.`{location(wh, name)}`")) for name in before} == before
    for scenario in ("combined", "immediate"):
        operation = wh.refresh(f"v_{scenario}")
        assert (operation.rows_deleted, operation.rows_inserted) == (0, 0)
        assert bag(wh.read(f"v_{scenario}")) == shown
        wh.verify(f"v_{scenario}")


@pytest.mark.parametrize(
    "begin",
    [
        lambda tx: tx.delete("r", "nope = 1"),
        lambda tx: tx.update("t", {"a": "nope + 1"}),
        lambda tx: tx.sql("INSERT INTO r SELECT nope FROM t"),
        lambda tx: tx.sql("MERGE INTO r USING t ON r.nope = t.a WHEN MATCHED THEN DELETE"),
    ],
    ids=["delete", "update", "insert", "merge"],
)
def test_what_does_not_resolve_is_refused_before_anything_runs(shared: Any, begin: Any) -> None:
    before = state_of(shared)
    with refused(InvalidSQLError, "nope"), shared.transaction() as tx:
        tx.insert("r", [(1, 9, "new")])
        begin(tx)
    assert state_of(shared) == before


def test_intervals_and_maps_in_a_transaction_that_is_undone_and_in_one_that_is_not(
    warehouse: Any, tmp_path: Path
) -> None:
    """`ts - INTERVAL 1 DAY 2 HOURS` takes both parts away; and maps, which no MERGE can compare, are undone."""
    wh = warehouse
    values = "(1, TIMESTAMP '2026-03-02 01:00:00', MAP('k', 1)), (2, TIMESTAMP '2026-03-02 03:00:00', MAP('k', NULL)), "
    path = make(wh.spark, tmp_path / "e", "id INT, ts TIMESTAMP, m MAP<STRING, INT>", values + "(3, NULL, NULL)")
    wh.track("e", path)
    before = bag(wh.spark.table(f"delta.`{path}`"))
    early = "ts - INTERVAL 1 DAY 2 HOURS < TIMESTAMP '2026-03-01 00:00:00'"
    with refused(TransactionError, "nothing is changed"), wh.transaction() as tx:
        tx.insert("e", [{"id": 4, "m": {"new": 4}}])
        tx.update("e", {"m": "MAP('k', 2)"}, "id < 3")
        tx.delete("e", early)
        tx.update("e", {"id": "CAST(MAP_KEYS(m)[0] AS INT)"}, "id = 4")
    assert wh.transactions() == []
    assert bag(wh.spark.table(f"delta.`{path}`")) == before
    with wh.transaction() as tx:
        tx.delete("e", early)
    assert {row.id for row in wh.spark.table(f"delta.`{path}`").collect()} == {2, 3}


def test_an_exception_in_the_block_changes_nothing(shared: Any) -> None:
    before = state_of(shared)
    with dying(), shared.transaction() as tx:
        tx.insert("r", [(1, 9, "new")])
        raise Death
    with shared.transaction():
        pass
    assert state_of(shared) == before
    with refused(TransactionError, "ended"):
        tx.delete("r", "TRUE")


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("r", [(1, 2)], ["r", "3"]),
        ("r", [("one", 2, "x")], ["r"]),
        ("r", [(2**40, 2, "x")], ["r"]),
        ("r", [{"a": 1, "q": 2}], ["r", "q"]),
        ("r", [17], ["r", "int"]),
        ("r", 17, ["r"]),
        ("t", [(1, 12345678)], ["t"]),
    ],
    ids=["width", "type", "range", "column", "scalar", "no rows", "precision"],
)
def test_rows_that_do_not_fit(shared: Any, name: str, rows: Any, words: list[str]) -> None:
    before = state_of(shared)
    with refused(InvalidInputError, *words), shared.transaction() as tx:
        tx.insert("t", [(5, 5)])
        tx.insert(name, rows)
    assert state_of(shared) == before


def test_frames_that_do_not_fit(shared: Any) -> None:
    before = state_of(shared)
    for query, word in (("SELECT 'x' AS a", "r"), ("SELECT 1 AS z", "z"), ("SELECT 1 AS a, 2 AS A", "twice")):
        with refused(InvalidInputError, word), shared.transaction() as tx:
            tx.insert("r", shared.spark.sql(query))
    assert state_of(shared) == before


def test_values_too_long_for_their_column(warehouse: Any, tmp_path: Path) -> None:
    """CAST would truncate a VARCHAR silently; a row that does not fit is refused."""
    path = make(warehouse.spark, tmp_path / "short", "c VARCHAR(3), k INT NOT NULL", "('abc', 1)")
    warehouse.track("short", path)
    for rows in ([("abcdef", 2)], [("abc", None)]):
        with pytest.raises(DeferredError), warehouse.transaction() as tx:
            tx.insert("short", rows)
    assert bag(warehouse.spark.table(f"delta.`{path}`")) == {("abc", 1): 1}


def test_unknown_tables_and_views_as_targets(shared: Any) -> None:
    before = state_of(shared)
    with refused(UnknownObjectError, "rr", "did you mean r"), shared.transaction() as tx:
        tx.delete("rr", "TRUE")
    with refused(UnknownObjectError, "bb", "did you mean b"), shared.transaction() as tx:
        tx.update("r", {"bb": "1"})
    with refused(DeferredError, "DROP"), shared.transaction() as tx:
        tx.sql("DROP TABLE r")
    with refused(DeferredError, "OVERWRITE"), shared.transaction() as tx:
        tx.sql("INSERT OVERWRITE r VALUES (1, 1, '')")
    assert state_of(shared) == before


def test_a_crash_between_statements_is_completed_by_the_next_operation(
    tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = tables
    wh.create_view("v", JOIN)
    with monkeypatch.context() as patch:
        dying_after(patch, 2)
        with dying(), wh.transaction() as tx:
            tx.insert("r", [(2, 5, "new")])
            # Finds nothing now; run again after the third statement it would find a row.
            tx.sql("MERGE INTO r USING (SELECT a FROM t WHERE d = 100) AS n ON r.a = n.a WHEN MATCHED THEN DELETE")
            tx.insert("t", [(1, 100)])
    with Warehouse.open(path=wh.settings.path, spark=wh.spark) as other:
        other.refresh("v")
        assert_fresh(other, "v")
        other.verify("v")
        assert (1, 1, "x") in bag(other.spark.table(f"delta.`{location(other, 'r')}`"))
        assert (1, ("decimal", "100.00")) in bag(other.spark.table(f"delta.`{location(other, 't')}`"))
        assert [t.state for t in other._context.metadata.transactions.pending()] == []


def test_a_crash_does_not_repeat_what_already_ran(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that changed nothing leaves no commit; those after it show that it was done."""
    wh = tables
    with monkeypatch.context() as patch:
        dying_after(patch, 2)
        with dying(), wh.transaction() as tx:
            tx.sql("MERGE INTO r USING (SELECT a FROM t WHERE d = 100) AS n ON r.a = n.a WHEN MATCHED THEN DELETE")
            tx.insert("t", [(1, 100)])
            tx.insert("r", [(8, 8, "last")])
    wh.sync()
    assert bag(wh.spark.table(f"delta.`{location(wh, 'r')}`")) == {(1, 1, "x"): 2, (2, None, "y"): 1, (8, 8, "last"): 1}


def test_a_crash_while_undoing(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wh = tables
    wh.create_view("v", JOIN)
    shown = bag(wh.read("v"))
    with monkeypatch.context() as patch:
        dying_after(patch, 3)  # two statements, the one that fails, then the undoing of r
        with dying(), wh.transaction() as tx:
            tx.insert("r", [(1, 9, "new")])
            tx.insert("t", [(1, 9)])
            tx.update("r", {"b": "CAST(s AS INT)"})
    wh.refresh("v")
    wh.verify("v")
    assert bag(wh.read("v")) == shown
    assert (1, 9, "new") not in bag(wh.spark.table(f"delta.`{location(wh, 'r')}`"))


def test_immediate_and_differential_views_follow_at_once(tables: Any) -> None:
    wh = tables
    wh.create_view("now", JOIN, scenario="immediate")
    wh.create_view("soon", JOIN, scenario="differential")
    wh.create_view("later", "SELECT a FROM r", scenario="combined")
    with wh.transaction() as tx:
        tx.insert("t", [(2, 8)])
    assert_fresh(wh, "now")
    assert bag(wh.diff("soon").select("d", "_change", "_count")) == {(("decimal", "8.00"), "insert", 1): 1}
    wh.partial_refresh("soon")
    assert_fresh(wh, "soon")
    # A direct write becomes known when some other view is propagated: they follow then too.
    wh.spark.sql(f"INSERT INTO delta.`{location(wh, 'r')}` VALUES (2, 2, 'direct')")
    wh.propagate("later")
    for name in ("now", "soon"):
        wh.verify(name)
    assert_fresh(wh, "now")


def test_a_transaction_costs_the_same_whatever_the_number_of_views(tables: Any) -> None:
    wh = tables
    for number in range(3):
        wh.create_view(f"v{number}", f"SELECT a, b FROM r WHERE a > {number}")
    before = {t.name: len(commits(wh.spark, t.location)) for t in wh.tables()}
    with wh.transaction() as tx:
        tx.insert("r", [(5, 5, "x")])
    after = {t.name: len(commits(wh.spark, t.location)) for t in wh.tables()}
    assert {name for name in after if after[name] != before[name]} == {"r"}
    assert after["r"] == before["r"] + 1


def test_tables_by_their_names_in_the_catalog(warehouse: Any, tmp_path: Path) -> None:
    wh = warehouse
    wh.spark.sql(f"CREATE OR REPLACE TABLE catalogued (a INT) USING delta LOCATION '{tmp_path / 'catalogued'}'")
    try:
        wh.track("c", "default.catalogued")
        wh.create_view("v", "SELECT c.a, catalogued.a + 1 AS b FROM c JOIN default.catalogued ON TRUE")
        wh.spark.sql("INSERT INTO catalogued VALUES (1), (2)")
        wh.refresh("v")
        wh.verify("v")
        assert bag(wh.read("v")) == {(a, b + 1): 1 for a in (1, 2) for b in (1, 2)}
        with refused(UnknownObjectError, "nowhere"):
            wh.track("d", "default.nowhere")
    finally:
        wh.spark.sql("DROP TABLE catalogued")


def test_one_commit_for_a_partial_refresh(tables: Any) -> None:
    wh = tables
    wh.create_view("v", JOIN)
    with wh.transaction() as tx:
        tx.delete("r", "a = 2")
        tx.insert("t", [(1, 4)])
    wh.propagate("v")
    before = len(commits(wh.spark, mv(wh, "v")))
    wh.partial_refresh("v")
    assert len(commits(wh.spark, mv(wh, "v"))) == before + 1
    assert [f.name for f in wh.spark.table(f"delta.`{mv(wh, 'v')}`").schema] == ["a", "s", "d"]


def test_handed_over_changes(warehouse: Any, tmp_path: Path) -> None:
    """The paper's own setting: the owner has changed the table already and hands us ▼R and ▲R."""
    wh = warehouse
    owned = make(wh.spark, tmp_path / "owned", "a INT, s STRING", "(1, 'x'), (1, 'x'), (2, 'y')")
    wh.track("owned", owned, log="table")
    wh.create_view("v", "SELECT o.a, o.s, p.s AS other FROM owned o JOIN owned p ON o.a = p.a")
    assert "delta.enableChangeDataFeed" not in str(commits(wh.spark, owned)[-1]["operationParameters"])
    wh.spark.sql(f"DELETE FROM delta.`{owned}` WHERE a = 2")
    wh.spark.sql(f"INSERT INTO delta.`{owned}` VALUES (3, NULL), (1, 'x')")
    assert wh.propagate("v").state == "nothing"  # nothing was handed over yet
    wh.append_changes("owned", deletions=[(2, "y")], insertions=[(3, None), (1, "x")])
    wh.verify("v")
    wh.refresh("v")
    assert_fresh(wh, "v")
    wh.verify("v")
    with refused(InvalidInputError, "owned", "has not changed"):
        wh.append_changes("owned", insertions=[(4, "z")])
    with refused(InvalidInputError, "owned", "append_changes"), wh.transaction() as tx:
        tx.insert("owned", [(4, "z")])


def test_a_handover_that_died_is_done_again_with_its_new_rows(
    warehouse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deferred.metadata.ledger import LedgerStore

    wh = warehouse
    owned = make(wh.spark, tmp_path / "owned", "a INT", "(1)")
    wh.track("owned", owned, log="table")
    wh.create_view("v", "SELECT a FROM owned")
    wh.spark.sql(f"INSERT INTO delta.`{owned}` VALUES (2)")

    def die(self: LedgerStore, entries: Any, *under: Any) -> None:
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(LedgerStore, "append", die)
        with dying():
            wh.append_changes("owned", insertions=[(2,)])
    wh.spark.sql(f"INSERT INTO delta.`{owned}` VALUES (3)")
    wh.append_changes("owned", insertions=[(2,), (3,)])
    wh.refresh("v")
    assert_fresh(wh, "v")


def test_applied_batches_are_removed(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wh = tables
    monkeypatch.setattr(batch, "BATCHES_LEFT", 2)
    view = wh.create_view("v", "SELECT a, s FROM r")
    left = []
    for number in range(4):
        wh.spark.sql(f"INSERT INTO delta.`{location(wh, 'r')}` VALUES ({number}, 0, 'batch')")
        wh.refresh("v")
        left.append(wh.spark.table(f"delta.`{view.location}/differential`").count())
    assert left == [1, 2, 1, 2]
    assert_fresh(wh, "v")


LITERALS = {
    "BIGINT": (["0", "-7", "9223372036854775807"[:18], "NULL"], ["1.5", "9223372036854775808", "-0", "1L"]),
    "TINYINT": (["1", "-128", "127"], ["128", "'3'"]),
    "DECIMAL(12,2)": (["1.5", "-0.25", "100", "0.00", "NULL"], ["1.005", "12345678901", "1e2"]),
    "DECIMAL(30,10)": (["1.5", "-12345.0000000001"], ["123456789012345678.5"]),
    "DOUBLE": (["1.5", "-2.25", "3", "0.1", "NULL"], ["1e3", "-0.0", "CAST('NaN' AS DOUBLE)", "0.12345678901234567"]),
    "FLOAT": (["NULL"], ["1.1", "3"]),
    "STRING": (["'abc'", "''", "'ä€😀'", "NULL"], ["'it''s'", r"'a\nb'", "7", "concat('a', 'b')"]),
    "BOOLEAN": (["TRUE", "false", "NULL"], ["'true'"]),
    "DATE": (
        ["DATE '2024-02-29'", "DATE '9999-12-31'", "NULL"],
        ["DATE '1582-10-10'", "'2024-01-01'", "DATE '0001-01-01'"],
    ),
    "TIMESTAMP": (["NULL"], ["TIMESTAMP '2024-01-01 01:02:03.000004'", "DATE '2024-01-01'"]),
    "BINARY": (["NULL"], ["X'1F'"]),
}
"""Of each type, literals that the driver writes, and others."""

VALUES = {
    "BIGINT": [0, -7, 2**63 - 1, None],
    "TINYINT": [1, -128, None],
    "DECIMAL(12,2)": [Decimal("1.5"), Decimal("-0.25"), 100, Decimal("0"), None],
    "DECIMAL(30,10)": [Decimal("1.5"), Decimal("123456789012345678.5"), None],
    "DOUBLE": [1.5, -0.0, 0.1, 3, float("nan"), float("-inf"), 5e-324, None],
    "FLOAT": [1.5, 0.1, None, None, None],
    "STRING": ["abc", "", "it's \\ \n", "ä€😀", "x" * 100, None],
    "BOOLEAN": [True, False, None],
    "DATE": [date(2024, 2, 29), date(1582, 10, 10), date(9999, 12, 31), None],
    "TIMESTAMP": [datetime(2024, 1, 1, 1, 2, 3, 4, UTC), datetime(1883, 1, 1, tzinfo=UTC), datetime(2024, 7, 1), None],
    "BINARY": [b"", b"\x00\xff", None],
}


def test_rows_that_the_driver_appends_are_those_that_spark_would(warehouse: Any, tmp_path: Path) -> None:
    """Random rows of every type, as literals and as values, in a transaction and by Spark alone."""
    random, wh = Random(11), warehouse
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(LITERALS))
    for name in ("mine", "sparks"):
        make(wh.spark, tmp_path / name, columns)
    record = wh.track("mine", tmp_path / "mine")
    first = wh.positions()["mine"]
    schema = wh.spark.table(f"delta.`{tmp_path / 'sparks'}`").schema

    def both(change: Any, sparks: Any) -> None:
        failures = []
        for work in (change, sparks):
            try:
                work()
                failures.append(False)
            except Exception:
                failures.append(True)
        assert failures[0] == failures[1]

    def in_transaction(statement: str) -> None:
        with wh.transaction() as tx:
            tx.sql(statement.format("mine"))

    def inserted(rows: Any) -> None:
        with wh.transaction() as tx:
            tx.insert("mine", rows)

    for number in range(12):
        rows = [[random.choice(plain) for plain, _ in LITERALS.values()] for _ in range(3)]
        if number % 3 == 2:
            odd = random.randrange(len(LITERALS))
            rows[1][odd] = random.choice(list(LITERALS.values())[odd][1])
        statement = "INSERT INTO {} VALUES " + ", ".join(f"({', '.join(row)})" for row in rows)
        spark_s = statement.format(f"delta.`{tmp_path / 'sparks'}`")
        both(lambda s=statement: in_transaction(s), lambda s=spark_s: wh.spark.sql(s))
    for _ in range(8):
        values = [tuple(random.choice(column) for column in VALUES.values()) for _ in range(2)]
        exact_ = [
            tuple(
                Decimal(v) if type_.startswith("DEC") and type(v) is int else float(v) if type_ == "DOUBLE" and v else v
                for v, type_ in zip(row, VALUES, strict=True)
            )
            for row in values
        ]
        frame = wh.spark.createDataFrame(exact_, schema)
        both(
            lambda v=values: inserted(v),
            lambda f=frame: f.write.format("delta").mode("append").save(str(tmp_path / "sparks")),
        )
    written = bag(wh.spark.table(f"delta.`{tmp_path / 'mine'}`"))
    assert written == bag(wh.spark.table(f"delta.`{tmp_path / 'sparks'}`"))
    log = DeltaLog(record.location)
    by_driver = [v for v in range(first + 1, log.version + 1) if "delta-rs" in str(log.actions(v, 10**6))]
    assert len(by_driver) >= 8
    assert {commit.changed_rows for commit in log.commits(first) if commit.version in by_driver} <= {2, 3}


def test_tables_that_the_driver_does_not_append_to(warehouse: Any, tmp_path: Path) -> None:
    """What a table asks of its writers is asked of Spark: conditions, defaults, computed columns, partitions."""
    wh = warehouse
    checked = make(wh.spark, tmp_path / "checked", "a INT NOT NULL, b INT")
    wh.spark.sql(f"ALTER TABLE delta.`{checked}` ADD CONSTRAINT positive CHECK (b > 0)")
    make(wh.spark, tmp_path / "computed", "a INT, b INT GENERATED ALWAYS AS (a + 1)")
    wh.spark.sql(f"CREATE TABLE delta.`{tmp_path / 'parts'}` (a INT, b STRING) USING delta PARTITIONED BY (b)")
    needed = make(wh.spark, tmp_path / "needed", "a INT NOT NULL, b INT")
    for name in ("checked", "computed", "parts", "needed"):
        wh.track(name, tmp_path / name)
    for table, statement in (
        ("checked", "INSERT INTO checked VALUES (1, 0)"),
        ("computed", "INSERT INTO computed VALUES (1, 7)"),
        ("needed", "INSERT INTO needed VALUES (NULL, 7)"),
    ):
        with pytest.raises(DeferredError), wh.transaction() as tx:
            tx.sql(statement)
        with pytest.raises(DeferredError), wh.transaction() as tx:
            tx.insert(table, [(None, 0) if table != "computed" else (1, 7)])
    with wh.transaction() as tx:
        tx.sql("INSERT INTO parts VALUES (1, '')")  # Spark keeps it as NULL
        tx.insert("parts", [(2, "")])
        tx.insert("needed", [(1, 7)])
    assert bag(wh.sql("SELECT * FROM parts")) == {(1, None): 1, (2, None): 1}
    assert bag(wh.spark.table(f"delta.`{needed}`")) == {(1, 7): 1}


def test_a_statement_that_spark_refuses_leaves_nothing_behind(tables: Any) -> None:
    """Alone it is not planned before it runs; it is recorded as undone, and the table has no commit of it."""
    wh = tables
    versions = state_of(wh)["versions"]
    with refused(InvalidSQLError, "nope"), wh.transaction() as tx:
        tx.sql("INSERT INTO r SELECT nope FROM t")
    assert state_of(wh)["versions"] == versions
    assert wh.transactions() == []
    assert wh._context.metadata.transactions.get(tx.id).state == "aborted"


def test_a_crash_after_the_driver_has_appended(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is there, the database does not know it: the row is there once, whoever finishes the transaction."""
    wh = tables
    from deferred.metadata.transactions import TransactionStore

    def die(*_: Any, **__: Any) -> Any:
        raise Death

    for begin in (lambda tx: tx.insert("r", [(9, 9, "z")]), lambda tx: tx.sql("INSERT INTO r VALUES (9, 9, 'z')")):
        with monkeypatch.context() as patch, dying():
            patch.setattr(TransactionStore, "set_state", die)
            with wh.transaction() as tx:
                begin(tx)
        with Warehouse.open(path=wh.settings.path, spark=wh.spark) as other:
            other.sync()
            assert other.transactions() == []
    assert bag(wh.spark.table(f"delta.`{location(wh, 'r')}`"))[(9, 9, "z")] == 2
