"""Promises about base tables: what to say where one does not hold, and the checks that verify makes of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp

from deferred.algebra.bags import call, column, select
from deferred.algebra.program import DUPLICATE, LATE, NEW, Guard
from deferred.algebra.selfmaintenance import Promises
from deferred.errors import PromiseBrokenError
from deferred.maintenance.definition import Definition
from deferred.metadata import Cut
from deferred.spark.engine import Engine
from deferred.sql.dialect import delta_table

EXAMPLES = 5
"""How many rows an error shows."""


def broken(guard: Guard, view: str, rows: Sequence[tuple[Any, ...]]) -> str:
    """What is wrong with a table, and what to do."""
    listed = ", ".join(str(row) for row in rows)
    columns = ", ".join(guard.names)
    what = (
        f"Table {guard.table} was tracked with the key ({columns}), but has several rows for {listed}."
        if guard.kind == DUPLICATE
        else f"{guard.table}({columns}) was tracked as a reference to {guard.other}, which "
        f"{'had no row for' if guard.kind == LATE else 'has no row for'} {listed}"
        f"{' when rows came that refer to it.' if guard.kind == LATE else '.'}"
    )
    return (
        f"{what} View {view} reads no base table and relies on it. Correct the rows and run rebuild({view!r}); if they "
        f"are right, track the table without that promise and create the view again."
    )


def exposed(guard: Guard, rows: Sequence[tuple[Any, ...]]) -> str:
    """Why base tables are read after all."""
    listed = ", ".join(str(row) for row in rows)
    columns = ", ".join(guard.names)
    return (
        f"Rows of {guard.table} with {columns} = {listed} were updated in columns on which the view's conditions or "
        f"joins depend, so rows that refer to them may enter or leave the view: the base tables are read this time."
    )


def undecided(guard: Guard, row: tuple[Any, ...]) -> str:
    """Why a view cannot answer a change from its own rows."""
    which = f"{guard.table} with {', '.join(guard.names)} = {', '.join(map(str, row))}"
    what = (
        f"shows no row that meets the same as the new row of {which}"
        if guard.kind == NEW
        else f"shows the row of {which} more than once, or with other values"
    )
    return f"The view cannot answer the change alone: it {what}."


def unkept(promise: str, view: str, rows: Sequence[str]) -> str:
    """What is said of a promise that does not hold, and on which a view relies."""
    return (
        f"{promise} does not hold, such as for {', '.join(rows)}. View {view} relies on it. Correct the rows and run "
        f"rebuild({view!r}); if they are right, track the table without that promise and create the view again."
    )


def declared(definition: Definition) -> Promises:
    """The keys and references of a view's base tables, as they are tracked now."""
    tables = definition.tables.values()
    return Promises.of({t.name: t.key for t in tables}, {t.name: t.references for t in tables})


def checks(definition: Definition, promises: Promises, cut: Cut) -> Iterator[tuple[str, exp.Select]]:
    """Each promise, and the rows of the base tables that break it."""
    for table, key in promises.keys.items():
        rows = select(map(column, key), _at(definition, table, cut))
        copies = rows.group_by(*map(column, key)).having(
            exp.GT(this=call("COUNT", exp.Star()), expression=exp.Literal.number(1))
        )
        yield f"{table}({', '.join(key)}) is a key", copies
    for table, references in promises.references.items():
        for reference in references:
            if reference.table not in definition.tables:
                continue
            mine, theirs = _at(definition, table, cut), _at(definition, reference.table, cut)
            same = [
                exp.EQ(this=column(a, "l"), expression=column(b, "r"))
                for a, b in zip(reference.columns, reference.key, strict=True)
            ]
            rows = select([column(c, "l") for c in reference.columns], mine, "l")
            other = select(map(column, reference.key), theirs).subquery("r")
            rows.append("joins", exp.Join(this=other, side="LEFT", kind="ANTI", on=exp.and_(*same)))
            for name in reference.columns:
                known = exp.Not(this=exp.Is(this=column(name, "l"), expression=exp.Null()))
                rows = rows.where(known, copy=False)
            yield f"{table}({', '.join(reference.columns)}) refers to {reference.table}", rows


def require(engine: Engine, view: str, definition: Definition, cut: Cut) -> None:
    """Refuse to compute a view that reads no base table later on from tables that break what it relies on.

    Logs tell what breaks a promise from now on, not what has broken it already.
    """
    if definition.promises is None:
        return
    for promise, against in checks(definition, definition.promises, cut):
        rows = engine.rows(against.limit(EXAMPLES))
        if rows:
            raise PromiseBrokenError(unkept(promise, view, [str(tuple(row)) for row in rows]))


def _at(definition: Definition, table: str, cut: Cut) -> exp.Expr:
    record = definition.tables[table]
    return delta_table(record.location, cut.versions[record.id])
