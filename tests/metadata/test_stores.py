"""The stores, on both databases: what goes in comes out, names have no case, and repeated writes do no harm."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from deferred.errors import InvalidInputError, MetadataError, NameTakenError, UnknownObjectError
from deferred.metadata import (
    Cut,
    Filling,
    LedgerEntry,
    Metadata,
    RememberedDefinition,
    SharedTable,
    TableRecord,
    TransactionRecord,
    ViewRecord,
)
from deferred.options import ViewOptions

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
DEFINITION = RememberedDefinition(
    tables={"sales": (("a", "int"),)},
    names={"shop.sales": "sales"},
    types={"SELECT 1 AS one": (("one", "int"),)},
    whole="It calls rand().",
    notes=("A note.",),
    key=("a", "b"),
    tidied=7,
    filled=Filling(1.5, 0.5),
    shared={"support1": SharedTable("sales-1f", "sales", ("a",), ("of_a > 5",))},
)


def add_table(metadata: Metadata, name: str, **fields: Any) -> TableRecord:
    return metadata.tables.add(**{"name": name, "location": f"/data/{name}", "kind": "feed", **fields})


def add_view(metadata: Metadata, name: str, reads: list[int], **fields: Any) -> ViewRecord:
    table = add_table(metadata, name, kind="view")
    given = {
        "sql": "SELECT 1",
        "options": ViewOptions(policy=2, propagate_every="1h", refresh_every="@daily", target_lag="30m"),
        "columns": [("a", "int"), ("b", "decimal(10,2)")],
        "location": f"/views/{name}",
        **fields,
    }
    return metadata.views.add(name=name, table_id=table.id, depends_on=reads, **given)


def test_a_table_comes_back_as_it_was_added(metadata: Metadata) -> None:
    added = add_table(
        metadata,
        "Sales",
        delta_id="0b5c",
        log_location="/logs/sales",
        key=["sale_id"],
        references={"custId": "customer.custId"},
        columns=[("sale_id", "bigint"), ("custId", "int")],
        first_version=2**40,
    )
    assert added == metadata.tables.get("sALES") == metadata.tables.by_id(added.id) == metadata.tables.all()[0]
    assert added.key == ("sale_id",)
    assert added.columns == (("sale_id", "bigint"), ("custId", "int"))
    assert added.first_version == 2**40
    assert added.created_at.utcoffset() == timedelta(0)


def test_names_of_tables_have_no_case(metadata: Metadata) -> None:
    add_table(metadata, "Straße")
    with pytest.raises(NameTakenError, match="STRASSE"):
        add_table(metadata, "STRASSE")


def test_the_error_for_an_unknown_table_names_the_nearest(metadata: Metadata) -> None:
    add_table(metadata, "customer")
    with pytest.raises(UnknownObjectError, match="There is no table custmer; did you mean customer"):
        metadata.tables.get("custmer")
    assert metadata.tables.find("custmer") is None
    with pytest.raises(UnknownObjectError, match="99"):
        metadata.tables.by_id(99)
    with pytest.raises(UnknownObjectError, match="99"):
        metadata.tables.update(99, location="/elsewhere")


def test_a_table_can_change(metadata: Metadata) -> None:
    table = add_table(metadata, "sales")
    changed = metadata.tables.update(table.id, name="Sales2", columns=(("a", "int"),), key=("a",), delta_id="1")
    assert (changed.name, changed.columns, changed.key, changed.delta_id) == ("Sales2", (("a", "int"),), ("a",), "1")
    assert changed == metadata.tables.get("sales2")


def test_removing_a_table_takes_its_ledger_and_never_its_number(metadata: Metadata) -> None:
    first = add_table(metadata, "first")
    metadata.ledger.append([LedgerEntry(first.id, 0, NOON)])
    metadata.tables.remove(first.id)
    assert metadata.tables.all() == []
    assert metadata.ledger.last(first.id) is None
    assert add_table(metadata, "second").id != first.id


def test_a_table_that_a_view_uses_stays(metadata: Metadata) -> None:
    table = add_table(metadata, "sales")
    view = add_view(metadata, "top", [table.id])
    for used in (table.id, view.table_id):
        with pytest.raises(InvalidInputError, match="top"):
            metadata.tables.remove(used)
    metadata.views.remove(view.id)
    metadata.tables.remove(view.table_id)
    metadata.tables.remove(table.id)


def test_the_ledger_finds_versions_by_number_and_by_time(metadata: Metadata) -> None:
    table = add_table(metadata, "sales").id
    other = add_table(metadata, "other").id
    entries = [
        LedgerEntry(table, number, NOON + timedelta(microseconds=number), "tx", "MERGE", 1) for number in range(5)
    ]
    metadata.ledger.append([*entries, LedgerEntry(other, 9, NOON)])
    assert metadata.ledger.last(table) == entries[4]
    assert metadata.ledger.between(table, 1, 3) == entries[2:4]
    assert metadata.ledger.at(table, NOON + timedelta(microseconds=2)) == entries[2]
    assert metadata.ledger.at(table, NOON - timedelta(microseconds=1)) is None
    assert metadata.ledger.between(table, 2, 3) == [entries[3]]
    assert metadata.ledger.between(table, 4, 5) == []
    assert metadata.ledger.prune(table, 3) == 3
    assert metadata.ledger.between(table, -1, 9) == entries[3:]
    assert metadata.ledger.last(other) == LedgerEntry(other, 9, NOON)


def test_a_version_that_is_in_the_ledger_stays_as_it_is(metadata: Metadata) -> None:
    table = add_table(metadata, "sales").id
    metadata.ledger.append([LedgerEntry(table, 1, NOON)])
    metadata.ledger.append([LedgerEntry(table, 1, NOON + timedelta(days=1)), LedgerEntry(table, 2, NOON)])
    metadata.ledger.append([])
    assert metadata.ledger.between(table, 0, 1) == [LedgerEntry(table, 1, NOON)]
    assert metadata.ledger.last(table) == LedgerEntry(table, 2, NOON)


def test_a_ledger_entry_of_no_table_is_refused(metadata: Metadata) -> None:
    with pytest.raises(MetadataError):
        metadata.ledger.append([LedgerEntry(77, 1, NOON)])


def test_many_syncs_at_once_write_each_version_once(metadata: Metadata) -> None:
    table = add_table(metadata, "sales").id
    entries = [LedgerEntry(table, number, NOON + timedelta(seconds=number)) for number in range(2500)]

    def sync(backwards: bool) -> None:
        metadata.ledger.append(entries[::-1] if backwards else entries)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sync, [True, False] * 4))
    assert metadata.ledger.between(table, -1, 9999) == entries


def test_times_come_back_in_utc_whatever_went_in(metadata: Metadata) -> None:
    table = add_table(metadata, "sales").id
    eastern = NOON.astimezone(timezone(timedelta(hours=-5)))
    metadata.ledger.append([LedgerEntry(table, 0, eastern)])
    stored = metadata.ledger.at(table, eastern)
    assert stored is not None
    assert stored.timestamp == NOON
    assert stored.timestamp.tzinfo is UTC
    with pytest.raises(ValueError, match="time zone"):
        metadata.ledger.append([LedgerEntry(table, 1, datetime(2026, 1, 1))])


def test_a_transaction_goes_through_its_states(metadata: Metadata) -> None:
    statements = [{"kind": "insert", "table": "sales", "rows": [1, None, "é"]}]
    record = TransactionRecord("t1", "prepared", "me", statements, NOON)
    assert metadata.transactions.add(record) == record == metadata.transactions.get("t1")
    with pytest.raises(NameTakenError, match="t1"):
        metadata.transactions.add(record)
    metadata.transactions.add(TransactionRecord("t2", "prepared", "me", [], NOON + timedelta(seconds=1)))
    assert [pending.id for pending in metadata.transactions.pending()] == ["t1", "t2"]
    metadata.transactions.set_state("t2", "aborting", error="no space")
    assert [pending.state for pending in metadata.transactions.pending()] == ["prepared", "aborting"]
    committed = metadata.transactions.set_state("t1", "committed", timestamp=NOON)
    aborted = metadata.transactions.set_state("t2", "aborted")
    assert (committed.timestamp, aborted.error) == (NOON, "no space")
    assert metadata.transactions.pending() == []
    assert metadata.transactions.prune(NOON + timedelta(seconds=1)) == 1
    with pytest.raises(UnknownObjectError, match="t1"):
        metadata.transactions.get("t1")
    with pytest.raises(UnknownObjectError, match="t1"):
        metadata.transactions.set_state("t1", "aborted")


def test_the_times_of_the_newest_commits_of_every_table(metadata: Metadata) -> None:
    sales, customer = add_table(metadata, "sales").id, add_table(metadata, "customer").id
    at = [NOON + timedelta(minutes=n) for n in range(4)]
    metadata.ledger.append([LedgerEntry(sales, version, moment, None, "WRITE") for version, moment in enumerate(at)])
    metadata.ledger.append([LedgerEntry(customer, 7, NOON, None, "WRITE")])
    assert metadata.ledger.times(each=2) == {sales: [(2, at[2]), (3, at[3])], customer: [(7, NOON)]}


def test_a_pending_transaction_is_never_pruned(metadata: Metadata) -> None:
    metadata.transactions.add(TransactionRecord("t1", "prepared", "me", [], NOON))
    assert metadata.transactions.prune(NOON + timedelta(days=1)) == 0


def test_a_view_comes_back_as_it_was_added(metadata: Metadata) -> None:
    sales, customer = add_table(metadata, "sales").id, add_table(metadata, "customer").id
    cut = Cut(NOON, {sales: 3, customer: 2**40})
    view = add_view(metadata, "Top", [sales, customer, sales], definition=DEFINITION, shown=cut)
    assert view == metadata.views.get("TOP") == metadata.views.find("top") == metadata.views.by_id(view.id)
    assert view.depends_on == tuple(sorted([sales, customer]))
    assert view.columns == (("a", "int"), ("b", "decimal(10,2)"))
    assert (view.shown, view.propagated, view.state, view.definition) == (cut, None, "active", DEFINITION)
    assert view.options == ViewOptions(policy=2, propagate_every="1h", refresh_every="@daily", target_lag="30m")


def test_a_view_of_a_taken_or_unknown_name(metadata: Metadata) -> None:
    view = add_view(metadata, "Top", [])
    with pytest.raises(NameTakenError, match="TOP"):
        metadata.views.add(
            name="TOP",
            sql="",
            options=ViewOptions(),
            columns=(),
            location="",
            table_id=view.table_id,
            depends_on=(),
        )
    with pytest.raises(UnknownObjectError, match="There is no view Topp; did you mean Top"):
        metadata.views.get("Topp")
    with pytest.raises(UnknownObjectError):
        metadata.views.update(99, state="broken")


def test_a_view_can_change_in_parts(metadata: Metadata) -> None:
    sales, customer = add_table(metadata, "sales").id, add_table(metadata, "customer").id
    view = add_view(metadata, "top", [sales])
    cut = Cut(NOON, {sales: 3})
    metadata.views.update(view.id, propagated=cut, propagated_batch=1)
    metadata.views.update(view.id, shown=cut, applied_batch=1)
    changed = metadata.views.update(
        view.id, state="broken", problem="the feed is gone", depends_on=[customer], columns=(("c", "int"),)
    )
    assert (changed.shown, changed.propagated, changed.applied_batch, changed.propagated_batch) == (cut, cut, 1, 1)
    assert (changed.state, changed.problem, changed.columns) == ("broken", "the feed is gone", (("c", "int"),))
    assert changed.depends_on == (customer,)
    assert changed.updated_at > view.updated_at
    assert metadata.views.dependents(sales) == []
    assert metadata.views.dependents(customer) == [changed]
    assert metadata.views.update(view.id, shown=None).shown is None


def test_a_views_own_table_has_its_columns(metadata: Metadata) -> None:
    view = add_view(metadata, "top", [add_table(metadata, "sales").id])
    metadata.views.update(view.id, columns=(("c", "int"),))
    assert metadata.tables.by_id(view.table_id).columns == (("c", "int"),)


def test_a_definition_takes_the_place_of_one_only_while_that_is_there(metadata: Metadata) -> None:
    view = add_view(metadata, "top", [add_table(metadata, "sales").id], definition=DEFINITION)
    new = RememberedDefinition(whole="It calls rand() now.")
    assert metadata.views.update(view.id, (), new, definition=new, sql="SELECT 2") == view
    changed = metadata.views.update(view.id, (), DEFINITION, definition=new, sql="SELECT 2")
    assert (changed.definition, changed.sql) == (new, "SELECT 2")
    assert metadata.views.update(view.id, (), DEFINITION, sql="SELECT 3") == changed


def test_operations_are_listed_newest_first_and_outlive_their_view(metadata: Metadata) -> None:
    view = add_view(metadata, "Top", [])
    cut = Cut(NOON, {1: 1})
    first = metadata.operations.start(
        kind="propagate",
        operation_id="first",
        view_id=view.id,
        view="Top",
        requested_by="airflow",
        details={"until": None},
    )
    assert (first.state, first.finished_at, first.from_cut) == ("running", None, None)
    second = metadata.operations.start(kind="gc", operation_id="chosen")
    done = metadata.operations.finish(
        first.id,
        "succeeded",
        from_cut=cut,
        to_cut=cut,
        rows_read=2**40,
        rows_inserted=2,
        seconds={"propagate": 0.5},
        strategy="delta",
    )
    assert metadata.operations.get(first.id) == done
    assert (done.rows_read, done.seconds, done.details, done.to_cut) == (
        2**40,
        {"propagate": 0.5},
        {"until": None},
        cut,
    )
    assert done.finished_at is not None
    assert [operation.id for operation in metadata.operations.recent()] == ["chosen", first.id]
    assert metadata.operations.recent("top") == [done]
    assert metadata.operations.recent(limit=1) == [second]
    assert [operation.state for operation in metadata.operations.recent()] == ["running", "succeeded"]
    assert done.from_cut == cut
    metadata.views.remove(view.id)
    (kept,) = metadata.operations.recent("Top")
    assert (kept.view_id, kept.view) == (None, "Top")
    assert metadata.operations.prune(done.finished_at) == 1
    for unknown in (metadata.operations.get, lambda name: metadata.operations.finish(name, "failed")):
        with pytest.raises(UnknownObjectError, match=first.id):
            unknown(first.id)


@pytest.mark.parametrize(
    "misspelt",
    [
        lambda metadata, table, view: metadata.tables.update(table, locatoin="x"),
        lambda metadata, table, view: metadata.views.update(view, shwon=None),
        lambda metadata, table, view: metadata.operations.finish("x", "failed", row=1),
    ],
)
def test_a_field_that_does_not_exist_is_an_error(
    metadata: Metadata, misspelt: Callable[[Metadata, int, int], object]
) -> None:
    view = add_view(metadata, "top", [])
    with pytest.raises(TypeError):
        misspelt(metadata, view.table_id, view.id)


def test_cuts_are_equal_by_value() -> None:
    cut = Cut(NOON, {2: 1, 1: 5})
    assert cut == Cut(NOON.astimezone(timezone(timedelta(hours=3))), {1: 5, 2: 1})
    assert cut != Cut(NOON, {1: 5})
    assert Cut.from_json(cut.to_json()) == cut
    with pytest.raises(ValueError, match="time zone"):
        Cut(datetime(2026, 1, 1), {})
