"""A warehouse as weeks of work leave it, made without Spark: tables written by delta-rs, views and their history.

The rows of the views are not what their queries give; what looks at them here reads metadata and Delta's logs alone.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from deferred.metadata import Cut, LedgerEntry, Metadata, RememberedDefinition, TableRecord, ViewRecord, utc_now
from deferred.options import ViewOptions

CUSTOMERS = pa.table({"custId": [1, 2, 3], "name": ["Ada", "Ben", "Cem"], "score": ["High", "Low", "High"]})
SALES = pa.table({"custId": [1, 1, 2], "itemNo": [101, 102, 101], "quantity": [2, 1, 5]})

DIFFERENTIAL = SALES.slice(0, 0).append_column("_deferred_n", pa.array([], pa.int64()))
DIFFERENTIAL = DIFFERENTIAL.append_column("_deferred_batch", pa.array([], pa.int64()))

BIG_SALES = "SELECT custId, itemNo, quantity FROM sales WHERE quantity > 1"
HIGH_SALES = "SELECT c.custId, c.name, s.quantity FROM customer c JOIN sales s ON c.custId = s.custId"
LARGEST = "SELECT custId, quantity FROM big_sales WHERE quantity > 4"


class Shop:
    """The folder, and what fills it."""

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self.folder, self.metadata = folder, metadata
        self._operations = 0

    def table(self, name: str, rows: pa.Table, kind: str = "files", path: Path | None = None) -> TableRecord:
        """A tracked table with its first commit in the ledger."""
        path = path or self.folder / "tables" / name
        write_deltalake(path, rows)
        columns = [(field.name, {"int64": "bigint"}.get(str(field.type), "string")) for field in rows.schema]
        made = self.metadata.tables.add(
            name=name, location=str(path), kind=kind, delta_id=str(DeltaTable(path).metadata().id), columns=columns
        )
        self._enter(made, 0)
        return made

    def insert(self, name: str, rows: pa.Table) -> None:
        """A commit that the ledger does not know yet."""
        write_deltalake(self.metadata.tables.get(name).location, rows, mode="append")

    def _enter(self, table: TableRecord, version: int) -> None:
        self.metadata.ledger.append([LedgerEntry(table.id, version, utc_now(), None, "WRITE")])

    def cut(self, *names: str, ago: float = 0.0) -> Cut:
        """The newest versions of some tables, as of some seconds ago."""
        tables = [self.metadata.tables.get(name) for name in names]
        versions = {table.id: DeltaTable(table.location).version() for table in tables}
        return Cut(utc_now() - timedelta(seconds=ago), versions)

    def view(self, name: str, sql: str, reads: Sequence[str], ago: float = 60.0, **options: Any) -> ViewRecord:
        """A view that shows the present versions of its tables, since some seconds ago."""
        location = self.folder / "warehouse" / "views" / f"{name}-01234567"
        table = self.table(name, SALES, "view", location / "mv")
        write_deltalake(location / "differential", DIFFERENTIAL)
        schemas = {r: self.metadata.tables.get(r).columns for r in reads}
        cut = self.cut(*reads, ago=ago)
        return self.metadata.views.add(
            name=name,
            sql=sql,
            options=ViewOptions.of(options),
            columns=table.columns,
            location=str(location),
            table_id=table.id,
            depends_on=[self.metadata.tables.get(r).id for r in reads],
            definition=RememberedDefinition(schemas, {r: r for r in reads}, settings={}),
            shown=cut,
            propagated=cut,
        )

    def operation(
        self,
        view: ViewRecord,
        kind: str,
        seconds: Mapping[str, float],
        rows: tuple[int, int, int] = (0, 0, 0),
        state: Any = "succeeded",
        **fields: Any,
    ) -> str:
        """A record of work on a view; returns its id."""
        self._operations += 1
        identity = f"{self._operations:032x}"
        self.metadata.operations.start(kind=kind, operation_id=identity, view_id=view.id, view=view.name)
        given = {"from_cut": view.shown, "to_cut": view.propagated, "strategy": "incremental", **fields}
        read, deleted, inserted = rows
        self.metadata.operations.finish(
            identity,
            state,
            seconds=dict(seconds),
            rows_read=read,
            rows_deleted=deleted,
            rows_inserted=inserted,
            **given,
        )
        return identity


@contextmanager
def small_shop(folder: Path) -> Iterator[Shop]:
    """Two tables, a view that is fresh, one over it that is stale, and a broken one; each with some history."""
    with empty_shop(folder) as shop:
        shop.table("sales", SALES)
        shop.table("customer", CUSTOMERS)
        big = shop.view("big_sales", BIG_SALES, ["sales"], refresh_every="1h", target_lag="30m")
        shop.view("largest", LARGEST, ["big_sales"])
        high = shop.view("high_sales", HIGH_SALES, ["customer", "sales"], ago=7200.0, target_lag="1h")
        for n in range(5):
            shop.operation(big, "propagate", {"log": 0.1, "compute": 0.3 + n / 10, "write": 0.1}, (n + 1, n, 1))
            shop.operation(big, "partial_refresh", {"net": 0.1, "apply": 0.05 * (n + 1)}, (n + 1, n, 1))
        shop.operation(high, "propagate", {"log": 0.2}, state="failed", error="The log of sales is lost.")
        shop.metadata.views.update(high.id, state="broken", problem="The log of sales from version 1 to 2 is lost.")
        shop.insert("sales", pa.table({"custId": [3, 3], "itemNo": [103, 104], "quantity": [7, 8]}))
        yield shop


@contextmanager
def empty_shop(folder: Path) -> Iterator[Shop]:
    """A project with nothing in it."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "deferred.toml").write_text('[warehouse]\npath = "warehouse"\n', encoding="utf-8")
    (folder / "warehouse").mkdir()
    with Metadata.open(f"sqlite:///{folder}/warehouse/deferred.db", create=True) as metadata:
        yield Shop(folder, metadata)


def heeds_ctrl_c() -> None:
    """What a process does before it begins: a suite that runs in the background ignores Ctrl-C, and so would it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
