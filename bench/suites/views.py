"""Views over TPC-H through changes of their tables: ours, the recomputation by Spark, and deltas written by hand.

The recomputation is CREATE OR REPLACE TABLE … AS the same query over the same state: what a user without this package
would run. All sides work at the same state of the tables, in turn; every second repetition in the opposite order.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import tables
from bench.cases import SIGN, Case
from bench.changes import CHANGES, CREATE, Size, Step
from bench.commits import newest
from bench.measure import Bench, difference
from bench.options import Options
from bench.results import Measurement
from deferred.errors import UnsupportedSQLError

LITTLE = 0.1
"""Repetitions may change this part of the tables in all; more, and each of them begins at the same state."""

_TARGET = re.compile(r"^(INSERT INTO|UPDATE|DELETE FROM|MERGE INTO) (\w+)")


def run(bench: Bench, options: Options) -> Iterator[Measurement]:
    """Every chosen case through every chosen change of every chosen size."""
    source = tables.cached(bench.spark, options.scale)
    for case in options.cases:
        with bench.scratch(case.name) as folder:
            tables.linked(source, folder / "tables")
            try:
                yield from Trial(bench, options, case, folder).run()
            except UnsupportedSQLError as error:
                if options.maintain == "auto":
                    raise
                print(f"\nviews: {case.name} is left out: {error}", file=sys.stderr)


@dataclass
class Trial:
    """One case in a warehouse of its own, over tables of its own."""

    bench: Bench
    options: Options
    case: Case
    folder: Path
    wh: Any = field(init=False)

    def run(self) -> Iterator[Measurement]:
        from deferred import Warehouse

        tables.name_in_session(self.bench.spark, self.folder / "tables", frozenset(tables.TABLES))
        with Warehouse.open(path=self.folder / "warehouse", spark=self.bench.spark) as self.wh:
            tables.track(self.wh, self.folder / "tables", self.case.tables)
            if CREATE in self.options.changes:
                yield self._creation()
            changes = [CHANGES[name] for name in self.options.changes if name != CREATE]
            wanted = [
                (change.name, size)
                for change in changes
                if change.tables & self.case.tables
                for size in (self.options.sizes if change.size is None else [change.size])
            ]
            if wanted:
                self._create_all()
            before = self._versions()
            for change, size in wanted:
                yield self._maintenance(change, size, before)
                if (change, size) != wanted[-1]:
                    self._reset(before)

    # ---- creating

    def _creation(self) -> Measurement:
        """Creating the views, against a table made of the same query."""
        measurement = self._measurement(CREATE, "all")
        different = 0
        for number, measured in self._repetitions():
            target = self.folder / f"created-{number}"
            statement = f"CREATE TABLE delta.`{target}` USING delta AS {self.case.recomputation}"
            self._sides(
                number,
                measurement if measured else None,
                [
                    ("create table", lambda s=statement: self.bench.spark.sql(s), [target]),
                    ("create", self._create_all, [self.folder / "warehouse"]),
                ],
            )
            different += self._differs(str(target), number, measured)
            self._drop_all()
        return self._finished(measurement, different)

    def _create_all(self) -> None:
        *below, (name, sql) = self.case.views
        for other, query in below:
            self.wh.create_view(other, query, refresh_policy=self.options.policy)
        self.wh.create_view(name, sql, refresh_policy=self.options.policy, maintain=self.options.maintain)

    def _drop_all(self) -> None:
        for name, _ in reversed(self.case.views):
            self.wh.drop_view(name)

    # ---- maintaining

    def _maintenance(self, change: str, size: Size, before: dict[str, int]) -> Measurement:
        """One change of one size, again and again, beginning at the versions given."""
        measurement = self._measurement(change, size.text)
        part = size.rows(10**9) / 10**9 if size.text.endswith("%") else 0.0
        again = part * (self.options.repetitions + self.options.warm_up) > LITTLE
        different = 0
        for number, measured in self._repetitions():
            since = self._versions()
            for statement in CHANGES[change].statements(Step(number, self.options.scale, size)):
                self.bench.spark.sql(self._located(statement))
            into = measurement if measured else None
            self._sides(number, into, [*self._recomputing(), *self._by_hand(change, since)], self._ours)
            different += self._differs(str(self.folder / "recomputed"), number, measured)
            if again and number + 1 < self.options.warm_up + self.options.repetitions:
                self._reset(before)
        empty = sum(sample.get("state") == "nothing" for sample in measurement.sides.get("propagate", []))
        if empty:
            measurement.note = f"nothing to propagate in {empty} repetitions"
        return self._finished(measurement, different)

    def _recomputing(self) -> list[tuple[str, Callable[[], Any], list[Path]]]:
        target = self.folder / "recomputed"
        statement = f"CREATE OR REPLACE TABLE delta.`{target}` USING delta AS {self.case.recomputation}"
        return [("recompute", lambda: self.bench.spark.sql(statement), [target])]

    def _by_hand(self, change: str, since: dict[str, int]) -> list[tuple[str, Callable[[], Any], list[Path]]]:
        """The deltas that an engineer would write, appended to a table as propagate appends its own."""
        if self.case.by_hand is None or CHANGES[change].tables != {"orders"}:
            return []
        orders = self.folder / "tables" / "orders"
        feed = f"table_changes_by_path('{orders}', {since['orders'] + 1})"
        changes = f"(SELECT *, {SIGN} FROM {feed}) AS changes"
        spark = self.bench.spark

        def append(target: Path, query: str) -> None:
            spark.sql(query).write.format("delta").mode("append").save(str(target))

        def plain() -> None:
            append(self.folder / "by-hand", self.case.by_hand.plain.format(changes=changes))

        def better() -> None:
            (row,) = spark.sql(f"SELECT MIN(o_orderkey), MAX(o_orderkey) FROM {feed}").collect()
            append(
                self.folder / "by-hand-better",
                self.case.by_hand.better.format(changes=changes, low=row[0], high=row[1]),
            )

        sides: list[tuple[str, Callable[[], Any], list[Path]]] = [("by hand", plain, [self.folder / "by-hand"])]
        if self.case.by_hand.better:
            sides.append(("by hand, better", better, [self.folder / "by-hand-better"]))
        return sides

    def _ours(self, number: int, into: Measurement | None) -> None:
        """propagate, partial_refresh, and beside it the bare statement that applies the same rows to the same table."""
        warehouse = self.folder / "warehouse"
        *below, (name, _) = self.case.views

        def propagate() -> Any:
            for view, _ in below:
                self.wh.refresh(view)
            return self.wh.propagate(name)

        self._side("propagate", propagate, [warehouse], into)
        bare = self._bare(name) if self.options.bare else None
        if bare and number % 2:
            self._side("bare", lambda: self.bench.spark.sql(bare[0]), [bare[1]], into)
        self._side("partial_refresh", lambda: self.wh.partial_refresh(name), [warehouse], into)
        if bare and not number % 2:
            self._side("bare", lambda: self.bench.spark.sql(bare[0]), [bare[1]], into)

    def _bare(self, view: str) -> tuple[str, Path] | None:
        """The plain statement that applies the pending rows to a copy of MV, and the copy."""
        spark, record = self.bench.spark, self.wh.find_view(view)
        place = Path(tempfile.mkdtemp(prefix="bare-", dir=self.folder))
        pending, copy = place / "pending", place / "copy"
        changes = self.wh.diff(view)
        *names, kind, _ = changes.columns
        changes.write.parquet(str(pending))
        rows = spark.read.parquet(str(pending))
        deleted = rows.where(f"`{kind}` = 'delete'")
        if not rows.head(1):
            return None
        tables.linked(Path(record.location) / "mv", copy)
        spark.sql(f"SELECT COUNT(*) FROM delta.`{copy}`").collect()  # Delta knows the copy as it knows MV
        listed = ", ".join(f"`{c}`" for c in names)
        if not deleted.head(1):
            return f"INSERT INTO delta.`{copy}` ({listed}) SELECT {listed} FROM parquet.`{pending}`", copy
        key = record.definition.key
        if key:
            inserted = rows.where(f"`{kind}` = 'insert'")
            merged = inserted.unionByName(deleted.join(inserted, [*key], "left_anti"))
            merged.write.parquet(f"{pending}-merged")
            source, matched = f"{pending}-merged", "".join(f" AND t.`{c}` <=> s.`{c}`" for c in key)[5:]
            whens = f"WHEN MATCHED AND s.`{kind}` = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET " + ", ".join(
                f"t.`{c}` = s.`{c}`" for c in names
            )
        else:
            source = str(pending)
            matched = f"s.`{kind}` = 'delete'" + "".join(f" AND t.`{c}` <=> s.`{c}`" for c in names)
            whens = "WHEN MATCHED THEN DELETE"
        values = ", ".join(f"s.`{c}`" for c in names)
        merge = f"MERGE INTO delta.`{copy}` AS t USING parquet.`{source}` AS s ON {matched} {whens}"
        return f"{merge} WHEN NOT MATCHED AND s.`{kind}` = 'insert' THEN INSERT ({listed}) VALUES ({values})", copy

    # ---- what both share

    def _measurement(self, change: str, size: str) -> Measurement:
        maintain = "" if self.options.maintain == "auto" else f" ({self.options.maintain})"
        return Measurement("views", self.case.name + maintain, change, size, self.options.scale)

    def _repetitions(self) -> Iterator[tuple[int, bool]]:
        """Number every repetition; the first ones warm up and are not kept."""
        for number in range(self.options.warm_up + self.options.repetitions):
            yield number, number >= self.options.warm_up

    def _sides(
        self,
        number: int,
        into: Measurement | None,
        sides: list[tuple[str, Callable[[], Any], list[Path]]],
        ours: Callable[[int, Measurement | None], None] | None = None,
    ) -> None:
        """Run all sides, in the opposite order every second time."""
        works = [lambda s=side: self._side(*s, into) for side in sides]
        if ours is not None:
            works.append(lambda: ours(number, into))
        for work in works if number % 2 == 0 else reversed(works):
            work()

    def _side(self, side: str, work: Callable[[], Any], roots: list[Path], into: Measurement | None) -> None:
        sample = self.bench.measure(work, roots)
        if into is not None:
            into.sides.setdefault(side, []).append(sample)

    def _differs(self, recomputed: str, number: int, measured: bool) -> int:
        """The number of rows in which MV and the recomputation differ."""
        last = number == self.options.warm_up + self.options.repetitions - 1
        if self.options.check == "last" and not last:
            return 0
        mv = Path(self.wh.find_view(self.case.name).location) / "mv"
        return difference(self.bench.spark, f"SELECT * FROM delta.`{mv}`", f"SELECT * FROM delta.`{recomputed}`")

    def _finished(self, measurement: Measurement, different: int) -> Measurement:
        self.bench.settle()
        measurement.correct = different == 0
        if different:
            measurement.note = f"WRONG: {different} rows differ from the recomputation"
        return measurement

    def _versions(self) -> dict[str, int]:
        return {name: newest(self.folder / "tables" / name / "_delta_log") for name in tables.TABLES}

    def _reset(self, versions: dict[str, int]) -> None:
        """Take the tables back to the versions given, and the views with them."""
        now = self._versions()
        for name, version in versions.items():
            if now[name] != version:
                target = self.folder / "tables" / name
                self.bench.spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF {version}")
        for name, _ in self.case.views:
            self.wh.rebuild(name)

    def _located(self, statement: str) -> str:
        """A statement with the table that it changes by its path: a temporary view cannot be written."""
        return _TARGET.sub(lambda m: f"{m.group(1)} delta.`{self.folder / 'tables' / m.group(2)}`", statement)
