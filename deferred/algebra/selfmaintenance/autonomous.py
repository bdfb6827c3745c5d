"""Updates that the view can answer itself (Blakeley 1987, chapter 4): deletions, and values that only pass through.

With a key of Rᵢ that the view shows, Aᵢ⁺ tells for every row of the view from which row of Rᵢ it comes. So the view and
the log alone say which rows a deletion takes away (theorem 4.2), and what a modification makes of them if it changes
only columns that the view passes through (theorem 4.3 A to D: no row enters the view, those to be modified are known,
all of them stay, and their new values are known). Insertions need the other tables (theorem 4.1), unless the view has
rows that meet the same (`insertions`): a guard finds all others.

A declared key may not hold. Where the view shows every value that it reads of Rᵢ (`verifying`), guards notice that,
whatever the other tables hold: of a view row they tell from which row of Rᵢ it comes, and that this row was there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.delta import Differentiator
from deferred.algebra.nested import identity
from deferred.algebra.operators import Filter, Net, Project, Restrict
from deferred.algebra.operators.in_view import view_rows
from deferred.algebra.operators.outer_join import ANTI, LEFT, OuterJoin
from deferred.algebra.operators.project import minus, pick, renamed
from deferred.algebra.operators.referring import part
from deferred.algebra.operators.union_all import united
from deferred.algebra.plan import Keys, Plan, used
from deferred.algebra.program import DUPLICATE, NEW, Guard, Program
from deferred.algebra.scalar import Scalar, all_true, column, is_column, same
from deferred.algebra.selfmaintenance.insertions import Alike
from deferred.algebra.selfmaintenance.promises import Promises
from deferred.algebra.selfmaintenance.rewriting import narrowed
from deferred.algebra.selfmaintenance.shown import Facts, Shown, facts, scan_of
from deferred.algebra.types import equality_is_coarser

FOUND = "_deferred_found"
"""Marks a row of the view with which a modified row was found."""


@dataclass(frozen=True)
class _Part:
    """An input of the join that has changed: its facts, and its columns in the view."""

    plan: Plan
    facts: Facts
    key: tuple[tuple[str, str], ...]
    passed: tuple[tuple[str, str], ...]
    """The columns that a modification may change: those that the view passes through, and nothing else reads."""
    steady: tuple[str, ...]
    """All others: a modification of them is a deletion and an insertion."""
    alike: Alike | None
    """How new rows are found to meet the same as rows that the view shows."""


class Autonomous:
    """A view that is a projection of a join of base tables, as far as it can be maintained from its own rows."""

    def __init__(self, plan: Plan, keys: Mapping[str, Sequence[str]], types: Mapping[str, str]) -> None:
        self.columns, self.types = plan.columns, types
        self.promises = Promises.of(keys, {})
        joined = Shown.by(plan, types).join
        simple = joined is not None and all(scan_of(each) is not None for each in joined.inputs)
        self.plan = narrowed(plan) if simple else plan
        self.shown = Shown.by(self.plan, types)

    @property
    def tables(self) -> list[str]:
        """The base tables of which deletions, and modifications of values that pass through, need no base table.

        If their keys hold: the view shows these.
        """
        join = self.shown.join
        if join is None or any(scan_of(each) is None for each in join.inputs):
            return []
        known = [facts(each, self.promises, self.types) for each in join.inputs]
        names = dict.fromkeys(each.table for each in known if each.table is not None)
        return [
            name
            for name in names
            if all(each.key and self.shown.columns(each.key) for each in known if each.table == name)
        ]

    @property
    def verifying(self) -> list[str]:
        """Those of them of which rows are noticed that share a key: the view shows every value that it reads of them.

        Then it tells of each of its rows v from which row r of Rᵢ it comes. If v has the key of a deleted row, but
        other values, r stays and the key is none. If v has the same values, it is there as often as r times what r
        meets: there once, r was there once, and is gone. Of a value that is not shown the view cannot tell whether
        another row of the key had it.
        """
        if self.shown.join is None:
            return []
        known = [(each, facts(each, self.promises, self.types).table) for each in self.shown.join.inputs]
        return [
            name
            for name in self.tables
            if all(self.shown.columns(each.columns) is not None for each, table in known if table == name)
        ]

    @property
    def insertable(self) -> dict[str, tuple[str, ...]]:
        """The base tables into which insertions may need no base table, while no other one changes.

        With the columns in which a new row must agree with one that the view shows.
        """
        found = {}
        for name in self.verifying:
            assert self.shown.join is not None
            known = [facts(each, self.promises, self.types) for each in self.shown.join.inputs]
            mine = [i for i, each in enumerate(known) if each.table == name]
            alike = self._part(self.shown.join.inputs[mine[0]]).alike if len(mine) == 1 else None
            if alike is not None:
                found[name] = tuple(known[mine[0]].names.get(c, c) for c, _ in alike.deciding)
        return found

    def program(self, changed: Iterable[str]) -> Program | None:
        """Δ(V) from the view and the logs of some tables; None where the view does not show the key of one of them.

        ∇V = V ⋉ key(▼R₁) ⊎ …: rows of the view that come from a deleted or modified row, each once.
        ΔV = those of them of which no part was deleted, with the new values of the modified parts. If one input alone
        has changed, its new rows are added as far as the view can decide what they meet.
        """
        changing, join = set(changed), self.shown.join
        if join is None or not changing <= set(self.tables):
            return None
        d = Differentiator(changing, self.types)
        parts = [self._part(each) for each in join.inputs if facts(each, self.promises, self.types).table in changing]
        logs = [d.shared(Net(_delta(d, each.plan), d.bitwise(each.plan.columns))) for each in parts]
        found = [self._touched(i, parts, logs) for i in range(len(parts))]
        touched = d.shared(Net(united(found, (*self.columns, COUNT)), d.bitwise(self.columns)))
        staying: Plan = touched
        added: list[Plan] = []
        for number, (each, log) in enumerate(zip(parts, logs, strict=True)):
            steady = d.shared(Net(pick(log, (*each.steady, COUNT)), d.bitwise(each.steady)))
            undecided = part(steady, exp.GT)
            if len(parts) == 1 and each.alike is not None:
                entering = Restrict(part(log, exp.GT), Keys.same(undecided, each.facts.key))
                rows, undecided = each.alike.added(d, d.shared(entering), self.columns)
                added.append(d.shared(Net(rows, d.bitwise(self.columns))))
                d.guards.append(self._repeated(each, added[-1]))
            d.guards += self._guards(each, log, touched, undecided)
            staying = self._modified(staying, each, log, steady, number)
        result = Net(united([staying, minus(touched), *added], (*self.columns, COUNT)), d.bitwise(self.columns))
        guards = tuple(Guard(g.kind, g.table, g.names, d.reading(g.rows), g.other) for g in d.guards)
        return Program(tuple(d.steps), d.reading(result), {}, (), guards)

    def _part(self, plan: Plan) -> _Part:
        known = facts(plan, self.promises, self.types)
        key = self.shown.columns(known.key)
        assert key is not None
        assert self.shown.join is not None
        computed = used(*(e for e in self.shown.outputs.values() if not is_column(e)))
        fixed = set(known.key) | used(self.shown.join.condition) | computed
        steady = tuple(c for c in plan.columns if c in fixed)
        passed = tuple((e.name, out) for out, e in self.shown.outputs.items() if e.name in plan.columns)
        alike = Alike.of(plan, self.shown, key, self.types)
        return _Part(plan, known, key, tuple(pair for pair in passed if pair[0] not in fixed), steady, alike)

    def _touched(self, i: int, parts: Sequence[_Part], logs: Sequence[Plan]) -> Plan:
        """Rows of the view that come from a row which the i-th log deletes, and from none that an earlier one does."""
        keys = [(theirs, mine) for mine, theirs in parts[i].key]
        rows: Plan = Restrict(view_rows(self.columns), Keys.of(part(logs[i], exp.LT), keys))
        for number, (each, log) in enumerate(zip(parts[:i], logs[:i], strict=True)):
            mine = {c: f"_deferred_{number}_{c}" for c, _ in each.key}
            rows = OuterJoin(rows, renamed(part(log, exp.LT), mine), ANTI, self._same_key(each, mine))
        return rows

    def _modified(self, rows: Plan, each: _Part, log: Plan, steady: Plan, number: int) -> Plan:
        """Rows of the view without those that come from a deleted row, and with the new values of modified ones.

        `steady` is the log in the columns of which a modification is a deletion and an insertion.
        """
        key = tuple(mine for mine, _ in each.key)
        mine = {c: f"_deferred_{number}_{c}" for c in (*key, *(c for c, _ in each.passed))}
        new = part(log, exp.GT)
        gone = renamed(part(steady, exp.LT), {c: mine[c] for c in key})
        condition = self._same_key(each, mine)
        left = OuterJoin(rows, gone, ANTI, condition)
        marked = Project(renamed(new, mine), (*((c, column(c)) for c in mine.values()), (FOUND, exp.true())))
        joined = OuterJoin(left, marked, LEFT, condition)
        values = {theirs: mine[c] for c, theirs in each.passed}

        def value(name: str) -> Scalar:
            if name not in values:
                return column(name)
            is_found = exp.Is(this=column(FOUND), expression=exp.true())
            return exp.Case(ifs=[exp.If(this=is_found, true=column(values[name]))], default=column(name))

        return Project(joined, (*((c, value(c)) for c in self.columns), (COUNT, column(COUNT))))

    def _same_key(self, each: _Part, mine: Mapping[str, str]) -> Scalar:
        return all_true(same(column(theirs), column(mine[c])) for c, theirs in each.key)

    def _guards(self, each: _Part, log: Plan, touched: Plan, undecided: Plan) -> Iterable[Guard]:
        """What the view cannot answer: new rows, also those modified in a column that does more than pass through.

        Nor may a key lead to several rows: in what the log deletes or inserts, or in the view. A row of the view that
        is found by the key of a deleted row must have that row's values, to the last bit, and be there once.
        """
        assert each.facts.table is not None
        names = tuple(each.facts.names[c] for c in each.facts.key)
        yield Guard(NEW, each.facts.table, names, pick(undecided, each.facts.key))
        deleted, inserted = part(log, exp.LT), part(log, exp.GT)
        for rows in (minus(deleted), inserted):
            keys = Net(pick(rows, (*each.facts.key, COUNT)))
            yield Guard(DUPLICATE, each.facts.table, names, pick(_more_than_once(keys), each.facts.key))
        shown = [(c, theirs) for c in each.plan.columns for _, theirs in self.shown.columns([c]) or ()]
        old = Project(deleted, tuple((f"_deferred_old_{c}", column(c)) for c, _ in shown))
        found = Filter(
            Restrict(touched, Keys.of(deleted, ((theirs, mine) for mine, theirs in each.key))),
            exp.GT(this=column(COUNT), expression=exp.Literal.number(0)),
        )
        alike = all_true(self._identical(theirs, f"_deferred_old_{c}", c) for c, theirs in shown)
        other = OuterJoin(found, old, ANTI, alike)
        yield Guard(DUPLICATE, each.facts.table, names, pick(other, [theirs for _, theirs in each.key]))
        yield self._repeated(each, found)

    def _identical(self, left: str, right: str, like: str) -> Scalar:
        """That two columns with the type of another one have the same value, to the last bit."""
        type_, sides = self.types.get(like, ""), (column(left), column(right))
        return same(*(identity(side, type_) for side in sides)) if equality_is_coarser(type_) else same(*sides)

    def _repeated(self, each: _Part, rows: Plan) -> Guard:
        """Rows that the view has, or would have, more than once: they may come from several rows of one key."""
        assert each.facts.table is not None
        names = tuple(each.facts.names[c] for c in each.facts.key)
        more = pick(_more_than_once(rows), [theirs for _, theirs in each.key])
        return Guard(DUPLICATE, each.facts.table, names, more)


def _more_than_once(rows: Plan) -> Plan:
    return Filter(rows, exp.GT(this=column(COUNT), expression=bigint(1)))


def _delta(d: Differentiator, plan: Plan) -> Plan:
    change = d.delta(plan)
    assert change is not None
    return change
