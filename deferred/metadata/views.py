"""The store of views and of what they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from deferred.errors import NameTakenError
from deferred.metadata import leases
from deferred.metadata.models import DependencyRow, TableRow, ViewRow, changes, name_key
from deferred.metadata.named import NamedStore
from deferred.metadata.records import Cut, Lease, RememberedDefinition, ViewRecord, utc_now
from deferred.options import ViewOptions

_BATCHES = ("applied_batch", "propagated_batch")
_PROGRESS = {*_BATCHES, "replacement_batch", "shown", "propagated", "state", "problem"}
"""The fields that say how far a view has come, and not what it is."""


class ViewStore(NamedStore[ViewRecord]):
    """The views, their definitions and policies, and how far each has come. Names are compared without case."""

    row = ViewRow
    noun = "view"

    def add(
        self,
        *,
        name: str,
        sql: str,
        options: ViewOptions,
        columns: Iterable[tuple[str, str]],
        location: str,
        table_id: int,
        depends_on: Iterable[int],
        definition: RememberedDefinition | None = None,
        shown: Cut | None = None,
        propagated: Cut | None = None,
    ) -> ViewRecord:
        """Record a view and the tables it reads; NameTakenError when another view has the name."""
        now = utc_now()
        statement = (
            self._database.insert(ViewRow)
            .values(
                name=name,
                name_key=name_key(name),
                sql=sql,
                **options.to_dict(),
                columns=[list(column) for column in columns],
                definition=definition or RememberedDefinition(),
                location=location,
                table_id=table_id,
                state="active",
                shown=shown,
                propagated=propagated,
                applied_batch=0,
                propagated_batch=0,
                replacement_batch=0,
                created_at=now,
                updated_at=now,
            )
            .on_conflict_do_nothing(index_elements=["name_key"])
            .returning(ViewRow.id)
        )
        with self._database.write() as session:
            view_id = session.scalar(statement)
            if view_id is None:
                raise NameTakenError(f"A view {name} exists already; choose another name, or drop that one.")
            _write_dependencies(session, view_id, depends_on)
            record = session.get_one(ViewRow, view_id).record()
        self._journal.keep(record)
        return record

    def restore(self, record: ViewRecord) -> None:
        """Record a view again under the id that it had: Delta's logs number its commits by that."""
        kept = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        depends_on, options = kept.pop("depends_on"), kept.pop("options")
        kept["columns"] = [list(column) for column in record.columns]
        with self._database.write() as session:
            session.add(ViewRow(**kept, **options.to_dict(), name_key=name_key(record.name)))
            session.flush()
            self._database.number_after(session, ViewRow)
            _write_dependencies(session, record.id, depends_on)

    def dependents(self, table_id: int) -> list[ViewRecord]:
        """Returns the views that read a table, by name."""
        statement = (
            select(ViewRow)
            .join(DependencyRow, DependencyRow.view_id == ViewRow.id)
            .where(DependencyRow.table_id == table_id)
            .order_by(ViewRow.name_key)
        )
        with self._database.read() as session:
            return [row.record() for row in session.scalars(statement)]

    def update(
        self,
        view_id: int,
        under: Iterable[Lease] = (),
        instead_of: RememberedDefinition | None = None,
        **fields: Any,
    ) -> ViewRecord:
        """Change some fields of a view, named as the columns of its row; `depends_on` replaces the tables it reads.

        LeaseLostError, and nothing is changed, if one of the leases `under` which it is done was taken over. Nor is
        anything changed if the view no longer has the definition that it is done `instead_of`: who has no lease may
        come after somebody who has recorded the same, and after what that one did next.

        Only the named columns are written: a propagate and a partial_refresh that overlap do not undo each other.
        Batches only go forward: who has read Delta's log before another did must not take back what that one has found.
        The view's own table has the columns of the view, always.
        """
        depends_on = fields.pop("depends_on", None)
        values = changes(ViewRow, {"updated_at": utc_now(), **fields})
        with self._database.write() as session:
            leases.check(session, under)
            if instead_of is not None and _definition(session, view_id) != instead_of:
                return self._row(session, view_id).record()
            behind = [ViewRow.__table__.c[name] <= values[name] for name in _BATCHES if name in values]
            session.execute(update(ViewRow).where(ViewRow.id == view_id, *behind).values(values))
            row = self._row(session, view_id)
            if depends_on is not None:
                _write_dependencies(session, view_id, depends_on)
                session.refresh(row)
            record = row.record()
            own = None
            if "columns" in values:
                table = session.get_one(TableRow, row.table_id)
                table.columns = row.columns
                own = table.record()
        if depends_on is not None or not fields.keys() <= _PROGRESS:
            self._journal.keep(record)
        if own is not None:
            self._journal.keep(own)
        return record

    def _row(self, session: Session, view_id: int) -> ViewRow:
        row = session.get(ViewRow, view_id)
        if row is None:
            raise self._no_id(view_id)
        return row

    def remove(self, view_id: int) -> None:
        """Remove a view, what it reads and its own table, all or nothing. Its operations stay under its name."""
        with self._database.read() as session:
            view = session.get(ViewRow, view_id)
            if view is not None:
                self._journal.forget(view.record())
                self._journal.forget(session.get_one(TableRow, view.table_id).record())
        with self._database.write() as session:
            table_id = session.scalar(delete(ViewRow).where(ViewRow.id == view_id).returning(ViewRow.table_id))
            session.execute(delete(TableRow).where(TableRow.id == table_id))


def _definition(session: Session, view_id: int) -> RememberedDefinition | None:
    """The definition of a view, which nobody changes before the transaction ends."""
    return session.scalar(select(ViewRow.definition).where(ViewRow.id == view_id).with_for_update())


def _write_dependencies(session: Session, view_id: int, table_ids: Iterable[int]) -> None:
    session.execute(delete(DependencyRow).where(DependencyRow.view_id == view_id))
    rows = [{"view_id": view_id, "table_id": table_id} for table_id in sorted(set(table_ids))]
    if rows:
        session.execute(insert(DependencyRow), rows)
