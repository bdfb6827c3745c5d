"""Guards: what a log must not contain for the rules on declared keys and references to hold.

They are plans over the log, the steps of a program and rows that are at hand; one that finds rows stops the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint, call
from deferred.algebra.operators.aggregate import Aggregate
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.outer_join import ANTI, OuterJoin
from deferred.algebra.operators.project import Project, pick
from deferred.algebra.operators.referring import Referred, part
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import Scan
from deferred.algebra.operators.signed import Net
from deferred.algebra.plan import Keys, Plan, used
from deferred.algebra.program import DANGLING, DUPLICATE, EXPOSED, Guard
from deferred.algebra.scalar import all_true, column, is_column
from deferred.algebra.strategy import Stateful
from deferred.algebra.support_tables import looked_up, without_keys_of

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.operators.promised_join import Link, PromisedJoin

COPIES = "_deferred_copies"
"""How many rows of one key a log inserts."""


def guards(join: PromisedJoin, d: Differentiator, changes: Sequence[Plan | None]) -> Iterator[Guard]:
    """What would break the promises that a join relies on, as far as logs and rows at hand tell."""
    for j in dict.fromkeys(link.referred for link in join.links):
        log = d.delta(scan_below(join.inputs[j]))
        if log is not None:
            yield from _of_key(join, d, j, log)
    for link in join.links:
        yield from _of_reference(join, d, link, changes)


def _of_key(join: PromisedJoin, d: Differentiator, j: int, log: Plan) -> Iterator[Guard]:
    """Exposed updates, and rows of one key.

    Let D be the change of E in its key and the columns on which the join depends, T that of its table in the key alone,
    both netted. A key that is inserted or deleted is in T. A row whose update leaves all of D's columns as they are,
    and itself in E, or outside, is netted away in D. What is left are exposed updates: in D and not in T (section 2).
    """
    key, rows = join.key(j), rows_of_table(join.inputs[j])
    assert key is not None
    scan = scan_below(rows)
    inside = d.delta(rows)
    assert inside is not None
    depends = tuple(c for c in rows.columns if c in key or c in used(join.condition))
    there = d.shared(Net(pick(inside, (*depends, COUNT)), d.bitwise(depends)))
    ids = [traced(rows, c) for c in key]
    by_key = Project(log, (*((c, column(i)) for c, i in zip(key, ids, strict=True)), (COUNT, column(COUNT))))
    moved = d.shared(Net(by_key))
    yield Guard(EXPOSED, scan.table, _names(scan, ids), pick(without_keys_of(there, moved, key), key))
    copies = Aggregate(part(by_key, exp.GT), key, ((COPIES, call("SUM", column(COUNT))),))
    twice = Filter(copies, exp.GT(this=column(COPIES), expression=bigint(1)))
    yield Guard(DUPLICATE, scan.table, _names(scan, ids), pick(twice, key))
    strategy = join.inputs[j].strategy
    if isinstance(strategy, Stateful):
        new = d.shared(Restrict(part(there, exp.GT), Keys.same(part(moved, exp.GT), key)))
        yield Guard(
            DUPLICATE, scan.table, _names(scan, ids), pick(strategy.past(join.inputs[j], Keys.same(new, key)), key)
        )


def _of_reference(join: PromisedJoin, d: Differentiator, link: Link, changes: Sequence[Plan | None]) -> Iterator[Guard]:
    """Rows that refer to a key which was deleted, or which is nowhere in a table that is kept as a whole."""
    referring, referred = join.inputs[link.referring], join.inputs[link.referred]
    mine, theirs = rows_of_table(referring), rows_of_table(referred)
    scan, names = scan_below(mine), [traced(mine, fk) for fk, _ in link.on]
    about = f"{scan.table}", _names(scan, names), scan_below(theirs).table
    fks = tuple(fk for fk, _ in link.on)
    log = d.delta(scan_below(theirs))
    if log is not None:
        ids = [traced(theirs, key) for _, key in link.on]
        by_key = Project(
            log, (*((k, column(i)) for (_, k), i in zip(link.on, ids, strict=True)), (COUNT, column(COUNT)))
        )
        gone = d.shared(part(Net(by_key), exp.LT))
        keys = Keys.of(gone, link.on)
        change = changes[link.referring]
        if isinstance(referring.strategy, Stateful):
            staying = join.staying(link.referring, change, keys)
            staying = staying if COUNT in staying.columns else Project(staying, (*_same(fks), (COUNT, bigint(1))))
            left = part(Net(pick(staying, (*fks, COUNT))), exp.GT)
            yield Guard(DANGLING, about[0], about[1], pick(left, fks), about[2])
        inserted = d.delta(mine)
        if inserted is not None:
            found = looked_up(part(inserted, exp.GT), keys)
            yield Guard(DANGLING, about[0], about[1], pick(found, fks), about[2])
    if isinstance(referred.strategy, Stateful) and is_whole(referred):
        inserted = d.delta(mine)
        if inserted is not None:
            known = all_true(exp.Not(this=exp.Is(this=column(fk), expression=exp.Null())) for fk in fks)
            new = d.shared(Filter(part(inserted, exp.GT), known))
            there = referred.restricted(Keys.of(new, ((key, fk) for fk, key in link.on)))
            missing = OuterJoin(new, there, ANTI, Referred(there, link.on).condition)
            yield Guard(DANGLING, about[0], about[1], pick(missing, fks), about[2])


def _same(names: Sequence[str]) -> list[tuple[str, exp.Expr]]:
    return [(name, column(name)) for name in names]


def _names(scan: Scan, ids: Sequence[str]) -> tuple[str, ...]:
    known = dict(zip(scan.ids, scan.names, strict=True))
    return tuple(known[i] for i in ids)


def is_whole(plan: Plan) -> bool:
    """Whether an input of a join has all rows of its table."""
    plan = rows_below(plan)
    while isinstance(plan, Project):
        plan = plan.child
    return isinstance(plan, Scan)


def rows_below(plan: Plan) -> Plan:
    """What a node that has its states at hand is computed from."""
    return plan.children[0] if isinstance(plan.strategy, Stateful) else plan


def rows_of_table(plan: Plan) -> Plan:
    """The part of one table that an input of a join is made of, before references reduce it."""
    from deferred.algebra.operators.referring import Referring

    plan = rows_below(plan)
    if isinstance(plan, Project) and isinstance(plan.child, Referring):
        plan = plan.child
    return plan.child if isinstance(plan, Referring) else plan


def scan_below(plan: Plan) -> Scan:
    """The one table that an input of a join is made of."""
    plan = rows_of_table(plan)
    while not isinstance(plan, Scan):
        plan = plan.children[0]
    return plan


def traced(plan: Plan, name: str) -> str:
    """The column of the scan below that a column of a plan over one table is."""
    while not isinstance(plan, Scan):
        if isinstance(plan, Project):
            expression = dict(plan.outputs)[name]
            assert is_column(expression)
            name = expression.name
        plan = plan.children[0]
    return name
