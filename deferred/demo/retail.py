"""The first act: the paper's retail application, and what happens to a view while its tables change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deferred.demo import SCHEMAS
from deferred.demo.step import Step
from deferred.maintenance import files
from deferred.sql.viewfile import read_view

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse

VIEW = "high_value_sales"


class Retail:
    """The scenes, in their order; a later one may need what an earlier one has seen."""

    def __init__(self, warehouse: Warehouse, folder: Path) -> None:
        self.warehouse, self.folder = warehouse, folder
        self.definition = read_view(warehouse.settings.views_folder / f"{VIEW}.sql")
        self.changes: list[Any] = []

    def scenes(self) -> Iterator[Step]:
        for scene in (
            self.tables,
            self.view,
            self.transaction,
            self.direct_write,
            self.stale,
            self.propagate,
            self.state_bug,
            self.readers,
            self.partial_refresh,
            self.verify,
        ):
            yield scene()

    def tables(self) -> Step:
        rows = []
        for name, schema in SCHEMAS.items():
            location = str(self.folder / "tables" / name)
            file = str(self.folder / "conf" / "data" / f"{name}.csv")
            data = self.warehouse.spark.read.csv(file, schema=schema, header=True)
            data.write.format("delta").option("delta.enableChangeDataFeed", "true").save(location)
            self.warehouse.track(name, location)
            rows.append((name, data.count(), schema))
        return Step(
            "Two Delta tables, as any job would write them, are tracked.", ("table", "rows", "columns"), tuple(rows)
        )

    def view(self) -> Step:
        files.create(self.warehouse, self.definition)
        return Step(
            "A materialized view over both: what customers of score High have bought.",
            ("view", "rows", "query"),
            ((VIEW, self.count(), self.definition.sql),),
        )

    def transaction(self) -> Step:
        with self.warehouse.transaction() as transaction:
            transaction.sql(
                "MERGE INTO customer USING (SELECT 9 AS id, 'High' AS new UNION ALL SELECT 5, 'Low') AS n "
                "ON custId = n.id WHEN MATCHED THEN UPDATE SET score = n.new"
            )
            transaction.sql("INSERT INTO sales VALUES (9, 101, 2, 15.16), (8, 107, 2, 9.68)")
        rows = tuple(
            (_sign(row, "▼▲"), row["custId"], row["name"], row["score"])
            for row in _sorted(self.warehouse.log("customer"), "custId")
        )
        return Step(
            "One transaction over both tables: Ines gets the score High, Elif the score Low, and two sales are "
            "made. The net log of customer:",
            ("", "custId", "name", "score"),
            rows,
        )

    def direct_write(self) -> Step:
        self.warehouse.spark.sql(f"INSERT INTO delta.`{self.folder / 'tables' / 'sales'}` VALUES (1, 105, 4, 5.40)")
        rows = tuple(
            (_sign(row, "▼▲"), row["custId"], row["itemNo"], row["quantity"], row["salesPrice"])
            for row in _sorted(self.warehouse.log("sales"), "custId")
        )
        return Step(
            "Another job, which knows nothing of views, appends a sale to the Delta table. The net log of sales:",
            ("", "custId", "itemNo", "quantity", "salesPrice"),
            rows,
        )

    def stale(self) -> Step:
        (status,) = self.warehouse.status()
        return Step(
            "So the view is stale. No writer has waited for it.",
            ("commits to propagate", "rows in the view", "rows the query has now"),
            ((status["pending_commits"], self.count(), len(self.rows(self.definition.query))),),
        )

    def propagate(self) -> Step:
        done = self.warehouse.propagate(VIEW)
        self.changes = _sorted(self.warehouse.diff(VIEW), "custId", "itemNo", "quantity")
        columns = [name for name, _ in self.warehouse.views()[0].columns]
        rows = tuple((_sign(row, "∇Δ"), row["_count"], *(row[name] for name in columns)) for row in self.changes)
        return Step(
            f"propagate computes, from {done.rows_read} changed rows and in {done.seconds:.1f} s, what must be "
            f"deleted from the view (∇) and inserted (Δ).",
            ("", "count", *columns),
            rows,
        )

    def state_bug(self) -> Step:
        """▲C ⋈ S ⊎ C ⋈ ▲S ⊎ ▲C ⋈ ▲S is right where C and S are read before the update; here they are read after it."""
        customers, sales = (self.rows(f"SELECT * FROM {name}") for name in SCHEMAS)
        new_customers, new_sales = (
            [row for row in self.warehouse.log(name).collect() if row["_change"] == "insert"] for name in SCHEMAS
        )
        wrong = _joined(new_customers, sales) + _joined(customers, new_sales) + _joined(new_customers, new_sales)
        right = sum(row["_count"] for row in self.changes if row["_change"] == "insert")
        return Step(
            f"The state bug, avoided: equations made for the state before the update, used after it, would "
            f"insert {wrong} rows where {right} are right (the new sale to Ines would come in three times)."
        )

    def readers(self) -> Step:
        (status,) = self.warehouse.status()
        return Step(
            "Readers have noticed nothing: the view is as it was.",
            ("rows in the view", "batches to apply", "commits to propagate"),
            ((self.count(), status["pending_batches"], status["pending_commits"]),),
        )

    def partial_refresh(self) -> Step:
        done = self.warehouse.partial_refresh(VIEW)
        return Step(
            f"partial_refresh applies the changes in {done.seconds:.1f} s: one Delta commit, and readers see "
            f"the new state.",
            ("rows deleted", "rows inserted", "rows in the view"),
            ((done.rows_deleted, done.rows_inserted, self.count()),),
        )

    def verify(self) -> Step:
        found = self.warehouse.verify(VIEW)
        return Step(
            "verify recomputes the view and checks the invariant, and that the differential tables are minimal.",
            ("condition", ""),
            tuple((check.condition, "holds" if check.holds else "DOES NOT HOLD") for check in found.checks),
        )

    def rows(self, query: str) -> list[Any]:
        found = self.warehouse.sql(query)
        assert found is not None, "a query returns rows"
        return found.collect()

    def count(self) -> int:
        return int(self.warehouse.read(VIEW).count())


def _sorted(frame: Any, *columns: str) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row["_change"], *(row[name] for name in columns)))


def _sign(row: Any, signs: str) -> str:
    return signs[row["_change"] == "insert"]


def _joined(customers: Sequence[Any], sales: Sequence[Any]) -> int:
    return sum(
        1
        for c in customers
        for s in sales
        if c["custId"] == s["custId"] and s["quantity"] != 0 and c["score"] == "High"
    )
