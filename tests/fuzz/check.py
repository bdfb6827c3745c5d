"""Checks one case on DuckDB or on Spark, and shrinks a case that fails to a small script.

Checked are: the bound plan means what the query says; after every step the view's old rows and the delta are the
recomputed rows; the delta is netted and deletes only what is there; the support tables hold what they should.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from deferred.algebra.relevance import Dialect, Relevance, relevance_of
from deferred.errors import DeferredError
from deferred.sql.dialect import ViewSQL, parse_query
from tests.fuzz.case import Case, Change, Row
from tests.fuzz.duck import CannotRun, Database, added
from tests.fuzz.on_spark import SparkDatabase

AnyDatabase = Database | SparkDatabase


class Skipped(Exception):
    """The engine itself cannot run the query, or a view may not contain it: nothing to compare."""


class Refused(Skipped):
    """A view may not contain the query."""


@dataclass
class Failure(Exception):
    """A case that is wrong: what of it, and the evidence."""

    kind: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.evidence}"


def check(case: Case, database: AnyDatabase | None = None) -> None:
    """Raises Failure where the case is wrong. A database with the case's tables may be given, to be used again."""
    db = database or Database(case.schemas)
    try:
        _check(case, db)
    finally:
        if database is None:
            db.close()


def _check(case: Case, db: AnyDatabase) -> None:
    for name, rows in case.initial.items():
        db.replace(name, Counter(rows))
    shown = _recomputed(db, case.query)
    try:
        bound = db.bind(case.query, case.maintain)
    except DeferredError as error:
        raise Refused(f"{type(error).__name__}: {error}") from None
    except Exception as error:
        raise Failure("bind", f"{type(error).__name__}: {error}") from error
    _expect("plan", _run("plan", lambda: db.evaluate(bound)), shown)
    db.keep(bound)
    # Deriving relevance takes as long as everything else: every third case does.
    relevance = {} if case.seed % 3 else relevance_of(bound.plan, bound.types, Dialect(ansi=True))
    for number, step in enumerate(case.steps, start=1):
        changed = apply(db, step)
        for name in relevance.keys() & set(changed):
            _run("relevance", lambda name=name: _drop_irrelevant(db, name, relevance[name]))
        fresh = _recomputed(db, case.query)
        delta = _run("delta", lambda changed=changed: db.delta(bound, changed))
        result = _run("delta", lambda shown=shown, delta=delta: added(shown, delta))
        _expect("delta", result, fresh, f"step {number}, changed {', '.join(changed)}")
        for name, (kept, right) in db.wrong_support_tables(bound).items():
            _expect("support", kept, right, f"step {number}, {name}")
        shown = fresh


def apply(db: AnyDatabase, step: dict[str, Change]) -> list[str]:
    """Change the tables and write their net logs; returns the tables that have a log, even an empty one."""
    for name, change in step.items():
        state = db.state[name]
        new = state - Counter(change.deleted) + Counter(change.inserted)
        db.log(name, {row: new[row] - state[row] for row in {*new, *state}})
        db.replace(name, new)
    return list(step)


def _drop_irrelevant(db: AnyDatabase, name: str, relevance: Relevance) -> None:
    """Leave in a log only the rows that can matter, as propagate does."""
    if relevance.condition is not None:
        db.drop_from_log(name, relevance.condition)


def _recomputed(db: AnyDatabase, query: str) -> Counter[Row]:
    try:
        return db.query(query)
    except CannotRun as error:
        raise Skipped(str(error)) from None


def _run(kind: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        raise Failure(kind, f"{type(error).__name__}: {error}") from error


def _expect(kind: str, got: Counter[Row], wanted: Counter[Row], where: str = "") -> None:
    if got != wanted:
        surplus, missing = got - wanted, wanted - got
        raise Failure(kind, f"{where + ': ' if where else ''}too much {dict(surplus)}, missing {dict(missing)}")


# ---- shrinking


def shrink(case: Case, kind: str, seconds: float = 60, database: AnyDatabase | None = None) -> Case:
    """The smallest case found that still fails in the same way: fewer steps and rows, less of the query."""
    deadline = time.monotonic() + seconds
    db = database or Database(case.schemas)
    smaller = True
    while smaller and time.monotonic() < deadline:
        smaller = False
        for candidate in _candidates(case):
            if time.monotonic() > deadline:
                break
            if _fails(candidate, kind, db):
                case, smaller = candidate, True
                break
    if database is None:
        db.close()
    return case


def _fails(case: Case, kind: str, db: AnyDatabase) -> bool:
    try:
        check(case, db)
    except Failure as failure:
        return failure.kind == kind
    except Exception:  # a candidate that is no valid case
        return False
    return False


def _candidates(case: Case) -> Iterator[Case]:
    """Cases that are smaller by one piece, the large pieces first."""
    for i in range(len(case.steps)):
        yield replace(case, steps=case.steps[:i] + case.steps[i + 1 :])
    for sql in smaller_queries(case.query):
        yield replace(case, query=sql)
    for i, step in enumerate(case.steps):
        for name in step:
            if len(step) > 1:
                rest = {n: c for n, c in step.items() if n != name}
                yield replace(case, steps=(*case.steps[:i], rest, *case.steps[i + 1 :]))
    for name, rows in case.initial.items():
        for fewer in _fewer(rows):
            yield replace(case, initial={**case.initial, name: fewer})
    for i, step in enumerate(case.steps):
        for name, change in step.items():
            less = [replace(change, deleted=rows) for rows in _fewer(change.deleted)]
            less += [replace(change, inserted=rows) for rows in _fewer(change.inserted)]
            for one in less:
                yield replace(case, steps=(*case.steps[:i], {**step, name: one}, *case.steps[i + 1 :]))


def _fewer(rows: tuple[Row, ...]) -> Iterator[tuple[Row, ...]]:
    if len(rows) > 2:
        yield ()
        yield rows[: len(rows) // 2]
        yield rows[len(rows) // 2 :]
    for i in range(len(rows)):
        yield rows[:i] + rows[i + 1 :]


def smaller_queries(sql: str) -> Iterator[str]:
    """The query with one piece left out or replaced by a part of itself.

    >>> list(smaller_queries("SELECT a FROM t WHERE NOT a"))
    ['SELECT a FROM t', 'SELECT a FROM t WHERE a']
    """
    tree = parse_query(sql)
    size = len(list(tree.walk()))
    seen = {tree.sql(dialect=ViewSQL)}
    for index in range(size):
        for change in _changes(list(tree.walk())[index]):
            copy = tree.copy()
            node = list(copy.walk())[index]
            root = change(node)
            text = (root or copy).sql(dialect=ViewSQL)
            if text not in seen and len(text) < len(sql) + 8:
                seen.add(text)
                yield text


Edit = Callable[[exp.Expr], exp.Expr | None]
"""Changes the tree around a node; returns the new root if the node was the root."""


def _changes(node: exp.Expr) -> Iterator[Edit]:
    if isinstance(node, exp.Query):
        for inner in node.find_all(exp.Query):
            if inner is not node and node.parent is None:
                index = list(node.walk()).index(inner)
                yield lambda n, index=index: list(n.walk())[index].copy()
    if isinstance(node, exp.SetOperation):
        yield lambda n: _exchanged(n, _bare(n.this))
        yield lambda n: _exchanged(n, _bare(n.expression))
    for clause in ("with_", "where", "having", "qualify", "distinct", "group", "offset", "windows"):
        if node.args.get(clause) and isinstance(node, exp.Query):
            yield lambda n, clause=clause: n.set(clause, None)
    if isinstance(node, exp.Query) and (node.args.get("limit") or node.args.get("order")):
        yield lambda n: [n.set(c, None) for c in ("order", "limit", "offset")] and None
    for listing in ("expressions", "joins"):
        listed = node.args.get(listing)
        if isinstance(listed, list) and (len(listed) > 1 or listing == "joins"):
            for i in range(len(listed)):
                yield lambda n, listing=listing, i=i: n.set(
                    listing, [e for j, e in enumerate(n.args[listing]) if j != i]
                )
    if isinstance(node, exp.Join) and (node.side or node.kind):
        yield lambda n: [n.set(c, None) for c in ("side", "kind")] and None
    if isinstance(node, (exp.Condition, exp.Paren, exp.Not)) and not isinstance(node, (exp.Column, exp.Query)):
        for i, child in enumerate(node.iter_expressions()):
            if isinstance(child, exp.Condition) and not isinstance(child, exp.Query):
                yield lambda n, i=i: _exchanged(n, list(n.iter_expressions())[i].copy())
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Subquery):
        yield lambda n: _exchanged(n, n.this.copy())


def _exchanged(node: exp.Expr, by: exp.Expr) -> exp.Expr | None:
    if node.parent is None:
        return by
    node.replace(by)
    return None


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Subquery) and not node.args.get("alias"):
        node = node.this
    return node.copy()


def report(case: Case, failure: Failure, seconds: float = 60, database: AnyDatabase | None = None) -> str:
    """The failure, and the script of a small case that fails in the same way."""
    small = shrink(case, failure.kind, seconds, database)
    return f"seed {case.seed}: {failure}\n\n{script(small, failure)}"


def script(case: Case, failure: Failure) -> str:
    """A complete program that shows the failure."""
    schemas = "".join(
        f"\n        {name!r}: {schema!r},"
        for name, schema in case.schemas.items()
        if name in case.query.replace("(", " ").split()
    )
    used = [name for name in case.schemas if f"        {name!r}: " in schemas]
    initial = "".join(f"\n        {name!r}: {case.initial[name]!r}," for name in used)
    steps = ""
    for step in case.steps:
        changes = ", ".join(f"{name!r}: {change!r}" for name, change in step.items() if name in used)
        steps += f"\n        {{{changes}}},"
    return (
        f"# seed {case.seed}: {failure.kind}\n"
        f"import datetime  # noqa: F401\nfrom decimal import Decimal  # noqa: F401\n\n"
        f"from tests.fuzz.check import check\nfrom tests.fuzz.case import Case, Change  # noqa: F401\n\n"
        f"check(Case(\n    schemas={{{schemas}\n    }},\n    query={case.query!r},\n"
        f"    initial={{{initial}\n    }},\n    steps=({steps}\n    ),\n    maintain={case.maintain!r},\n))\n"
    )
