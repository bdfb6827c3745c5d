"""What a base table can be: kinds and their classes, what each says of itself, and logs that cannot be trusted.

The tables are written with delta-rs and have their feed on, so no Spark is started.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deferred.algebra.bags import BATCH, COUNT
from deferred.errors import InvalidInputError, LogLostError, SparkFailure, StorageError
from deferred.log import ledger, tracking
from deferred.log.context import Context
from deferred.log.delta_log import FEED
from deferred.log.locating import Given
from deferred.log.sources import SOURCES, Source, is_tracked, options, source_of, suggested, trackable
from deferred.log.sources.source import TRACKED
from deferred.metadata import LedgerEntry, Metadata, TableRecord, utc_now
from deferred.spark.engine import Engine
from deferred.sql.dialect import literal, text


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with Metadata.open(f"sqlite:///{tmp_path}/metadata.db", create=True) as metadata:
        opened = Context(metadata, Engine(), str(tmp_path / "warehouse"))
        yield opened
        assert not opened.engine.started


def write(location: Path, *values: int) -> str:
    write_deltalake(
        location, pa.table({"a": pa.array(values, pa.int32())}), mode="append", configuration={FEED: "true"}
    )
    return str(location)


def add(context: Context, kind: str, location: str, **fields: object) -> TableRecord:
    return context.metadata.tables.add(name=kind, location=location, kind=kind, **fields)  # type: ignore[arg-type]


def sync(context: Context, *records: TableRecord) -> int:
    return ledger.sync(context, records, lambda transaction: None)


def subclasses(of: type[Source]) -> set[type[Source]]:
    return {c for direct in of.__subclasses__() for c in (direct, *subclasses(direct))}


def test_every_kind_has_a_class_and_track_names_some() -> None:
    assert set(SOURCES.values()) == subclasses(Source)
    for option, source in options().items():
        assert trackable(option) is source
    listed = " or ".join(rf"'{option}' \({source.summary}\)" for option, source in options().items())
    (untracked, *_) = (kind for kind, source in SOURCES.items() if source.option is None)
    with pytest.raises(InvalidInputError, match=rf"^log must be {listed}, not '{untracked}'\.$"):
        trackable(untracked)


def test_the_log_that_suits_a_table(context: Context, tmp_path: Path) -> None:
    with_feed = write(tmp_path / "feed", 1)
    write_deltalake(tmp_path / "plain", pa.table({"a": [1]}))
    plain = str(tmp_path / "plain")
    for given, wanted, why in (
        (Given(with_feed), "feed", "feed is on"),
        (Given(plain), "files", "log='feed' would alter it"),
        (Given(plain, updated_at="at"), "timestamps", "updated_at"),
        (Given(None, columns="a INT"), "debezium", "its columns are declared"),
    ):
        option, reason = suggested(context, given)
        assert option == wanted
        assert why in reason
    with pytest.raises(InvalidInputError, match=rf"No log suits {tmp_path}: it is not a Delta table\."):
        suggested(context, Given(str(tmp_path)))
    assert tracking.track(context, "plain", plain, None, None, "auto").kind == "files"


@pytest.mark.parametrize(
    ("log", "options", "reason"),
    [
        ("feed", {"columns": "a INT"}, "log='feed'\\) takes no columns"),
        ("files", {"updated_at": "a"}, "log='files'\\) takes no updated_at"),
        ("debezium", {"columns": "a INT", "deletions": "d"}, "takes no deletions"),
        ("debezium", {}, "needs the table's columns and its key"),
        ("timestamps", {}, "needs a table, its key and the column with the time"),
        ("timestamps", {"updated_at": "a", "columns": "a INT"}, "takes no columns"),
    ],
)
def test_what_a_source_has_no_use_for_or_lacks(
    context: Context, tmp_path: Path, log: str, options: dict[str, str], reason: str
) -> None:
    location = write(tmp_path / "r", 1)
    with pytest.raises(InvalidInputError, match=reason):
        tracking.track(context, "r", location, None, None, log, **options)
    assert context.metadata.tables.all() == []


@pytest.mark.parametrize("part", ["kind", "option", "summary", "noun", *TRACKED])
def test_a_source_that_forgets_a_part_cannot_be_imported(part: str) -> None:
    """Not even where it could inherit it: it would take the place of the kind that it extends."""
    stated = {name: "x" for name in ("kind", "option", "summary", "noun", *TRACKED) if name != part}
    with pytest.raises(TypeError, match=rf"^The source Forgetful does not define {part}\.$"):
        type("Forgetful", (SOURCES["timestamps"],), stated)


def test_a_source_that_forgets_what_it_must_do_cannot_be_imported() -> None:
    with pytest.raises(TypeError, match=r"^The source Forgetful does not define kind, .*append_changes, .*set_up"):
        type("Forgetful", (Source,), {})


def test_a_tracked_table_and_its_commits(context: Context, tmp_path: Path) -> None:
    location = write(tmp_path / "r", 1, 2)
    record = tracking.track(context, "r", location, ["a"], None, "feed")
    assert is_tracked(record)
    write(tmp_path / "r", 3)
    source = source_of(context, record)
    assert (source.version, source.columns, source.row_count()) == (1, (("a", "int"),), 3)
    assert text(source.rows_at(1)) == f"delta.`{location}` VERSION AS OF 1"
    write(tmp_path / "r", 4)
    assert source.version == 1  # as it was at the first look
    assert sync(context, record) == 2
    assert sync(context, record) == 0
    assert [entry.version for entry in context.metadata.ledger.between(record.id, -1, 9)] == [0, 1, 2]


def test_the_changes_of_a_feed_are_signed_and_netted(context: Context, tmp_path: Path) -> None:
    for number in range(3):
        location = write(tmp_path / "it's", number)
    source = source_of(context, add(context, "feed", location))
    assert text(source.net_changes(0, 2, [("a", "int")])) == (
        "SELECT `a`, `_deferred_n` FROM (SELECT `a`, CAST(SUM(`_deferred_n`) AS BIGINT) AS `_deferred_n` FROM "
        "(SELECT `a`, CASE WHEN `_change_type` IN ('insert', 'update_postimage') THEN CAST(1 AS BIGINT) "
        f"ELSE CAST(-1 AS BIGINT) END AS `_deferred_n` FROM table_changes_by_path({literal(location)}, 1, 2) AS q) AS q "
        "GROUP BY `a`) AS summed WHERE `_deferred_n` <> 0"
    )


def test_a_commit_that_repartitions_the_table_is_read_from_the_table_itself(context: Context, tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1, 2], pa.int32())})
    for mode, partitions in (("append", ()), ("append", ()), ("overwrite", ("a",)), ("append", ("a",))):
        more = {"schema_mode": "overwrite"} if mode == "overwrite" else {}
        write_deltalake(tmp_path / "t", rows, mode=mode, partition_by=list(partitions), **more)
    source = source_of(context, add(context, "feed", str(tmp_path / "t")))
    assert _read(source, 0, 3) == (["0", "2"], [("3", "3")])
    assert _read(source, 0, 1) == (["0", "1"], [])  # the feed is read as the table is partitioned now
    assert _read(source, 2, 3) == ([], [("3", "3")])


def _read(source: Source, after: int, upto: int) -> tuple[list[str], list[tuple[str, str]]]:
    """The versions of a table that its changes are read from, and the parts of its feed."""
    sql = text(source.changes(after, upto, ["b"]))
    return sorted(re.findall(r"VERSION AS OF (\d+)", sql)), re.findall(r"_by_path\('[^']*', (\d+), (\d+)\)", sql)


def test_changes_that_were_handed_over_are_found_by_their_batches(context: Context) -> None:
    record = add(context, "log", "/t", log_location="/l", first_version=2)
    source = source_of(context, record)
    assert source.version == 2
    entries = [LedgerEntry(record.id, version, utc_now(), None, None, batch) for version, batch in ((4, 1), (7, 2))]
    context.metadata.ledger.append(entries)
    assert source.version == 7
    assert sync(context, record) == 0
    assert text(source.changes(2, 7, ["a"])) == (
        "SELECT `a`, `_deferred_n` FROM delta.`/l` AS q WHERE `_deferred_batch` IN (1, 2)"
    )
    assert text(source.changes(7, 9, ["a"])).endswith("WHERE FALSE")


def test_what_is_known_of_changed_rows_without_reading_them(context: Context, tmp_path: Path) -> None:
    """By the statistics of the files of a commit, or of a batch that was handed over; of batches without rows nothing."""
    location = write(tmp_path / "t", 1)
    write(tmp_path / "t", 5, 7)
    files = source_of(context, add(context, "files", location))
    ((group,),) = filter(None, files.touched(0, 1))
    assert (group.known["a"].lowest, group.known["a"].highest) == (5, 7)
    assert files.rows_by_version(0, 1) == {1: 2}

    log = tmp_path / "log"
    for batch, values in ((1, [3]), (2, [40, 50])):
        rows = {"a": pa.array(values, pa.int32()), COUNT: [1] * len(values), BATCH: [batch] * len(values)}
        write_deltalake(log, pa.table(rows), mode="append", partition_by=[BATCH])
    record = add(context, "log", location, columns=(("a", "int"),), log_location=str(log), first_version=0)
    entries = [
        LedgerEntry(record.id, version, utc_now(), None, None, batch) for version, batch in ((1, 1), (4, 2), (5, 3))
    ]
    context.metadata.ledger.append(entries)
    handed = source_of(context, record)
    found = list(handed.touched(1, 5))
    assert [[g.known["a"].highest for g in groups or ()] for groups in found] == [[50], []]
    assert found[1] is None
    assert handed.rows_by_version(0, 5) == {1: 1, 4: 2, 5: None}
    assert (handed.changed_rows(0, 4), handed.changed_rows(0, 5)) == (3, None)


def test_who_may_write(context: Context) -> None:
    refusals = {kind: source_of(context, add(context, kind, f"/{kind}")).write_refusal for kind in SOURCES}
    assert refusals["feed"] is None
    assert refusals["files"] is None
    assert "append_changes" in (refusals["log"] or "")
    assert "is a copy of" in (refusals["timestamps"] or "")
    assert "is a copy of a remote table" in (refusals["debezium"] or "")
    with pytest.raises(InvalidInputError, match=r"feed is tracked by its change data feed\. Events are taken in"):
        source_of(context, context.metadata.tables.get("feed")).ingest([])
    assert "is a view" in (refusals["view"] or "")
    with pytest.raises(InvalidInputError, match="view is a view; drop it instead"):
        tracking.untrack(context, "view")
    with pytest.raises(InvalidInputError, match="feed is tracked by its change feed"):
        source_of(context, context.metadata.tables.get("feed")).append_changes([], [])


def test_a_table_that_was_recreated_or_replaced(context: Context, tmp_path: Path) -> None:
    location = write(tmp_path / "r", 1)
    write(tmp_path / "r", 2)
    record = tracking.track(context, "r", location, None, None, "feed")
    shutil.copytree(location, tmp_path / "copy")
    write(tmp_path / "r", 3)
    sync(context, record)

    shutil.rmtree(location)
    shutil.copytree(tmp_path / "copy", location)
    assert source_of(context, record).was_replaced
    with pytest.raises(LogLostError, match="replaced by an older copy"):
        sync(context, record)

    shutil.rmtree(location)
    with pytest.raises(StorageError, match="Table r cannot be read"):  # nobody knows whether it is gone for ever
        sync(context, record)

    write(tmp_path / "r", 9)
    assert source_of(context, record).was_recreated
    with pytest.raises(LogLostError, match="was dropped and recreated, so its log no longer covers the old rows"):
        sync(context, record)
    tracking.trusted_again(context, record)
    record = context.metadata.tables.get("r")
    assert not source_of(context, record).was_replaced
    assert sync(context, record) == 0
    assert [entry.version for entry in context.metadata.ledger.between(record.id, -1, 9)] == [0]


def test_columns_that_a_view_reads(context: Context, tmp_path: Path) -> None:
    source = source_of(context, tracking.track(context, "r", write(tmp_path / "r", 1), None, None, "feed"))
    source.check_columns([("A", "int")])
    with pytest.raises(LogLostError, match="Column b of table r, which a view reads, was dropped or renamed"):
        source.check_columns([("b", "int")])
    with pytest.raises(LogLostError, match="was bigint and is now int"):
        source.check_columns([("a", "bigint")])


@pytest.mark.parametrize("sign", ["FAILED_READ_FILE", "DELTA_FILE_NOT_FOUND", "does not exist"])
def test_a_log_is_lost_only_if_a_file_of_it_is_gone(context: Context, tmp_path: Path, sign: str) -> None:
    """Spark says the same of a storage that is out of reach for a moment."""
    record = tracking.track(context, "r", write(tmp_path / "r", 1), None, None, "feed")
    for value in (2, 3):
        write(tmp_path / "r", value)
    source = source_of(context, record)
    with pytest.raises(StorageError, match="Its files are there"), source.guarded(0, 2):
        raise SparkFailure(f"[{sign}] in a storage")
    with pytest.raises(SparkFailure, match="executor"), source.guarded(0, 2):
        raise SparkFailure("An executor was lost.")
    with pytest.raises(LogLostError, match="Delta no longer has it"), source.guarded(0, 2):
        raise SparkFailure("[DELTA_MISSING_CHANGE_DATA] It was never written.")

    commit = tmp_path / "r" / "_delta_log" / f"{2:020}.json"
    (added,) = (json.loads(line)["add"]["path"] for line in commit.read_text().splitlines() if '"add"' in line)
    (tmp_path / "r").rename(tmp_path / "away")
    with pytest.raises(StorageError), source.guarded(0, 2):
        raise SparkFailure(f"[{sign}] in a storage")
    (tmp_path / "away").rename(tmp_path / "r")
    (tmp_path / "r" / added).unlink()
    with pytest.raises(StorageError), source.guarded(0, 1):  # these changes are not in it
        raise SparkFailure(f"[{sign}] in a storage")
    with pytest.raises(LogLostError, match=f"{added} does not exist.*rebuild"), source.guarded(0, 2):
        raise SparkFailure(f"[{sign}] in a storage")


def test_a_log_that_was_handed_over_is_lost_if_a_file_of_it_is_gone(context: Context, tmp_path: Path) -> None:
    log = write(tmp_path / "log", 1)
    source = source_of(context, add(context, "log", "/t", log_location=log))
    with pytest.raises(StorageError), source.guarded(0, 1):
        raise SparkFailure("FAILED_READ_FILE")
    for file in (tmp_path / "log").glob("*.parquet"):
        file.unlink()
    with pytest.raises(LogLostError, match="parquet does not exist"), source.guarded(0, 1):
        raise SparkFailure("FAILED_READ_FILE")
