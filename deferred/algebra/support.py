"""Support tables: what a node needs to know of its past beyond the view's own columns, kept at s_i.

A *counted* aggregate keeps the parts of its groups (Gupta et al.'s counting): a change adds to them or takes from them,
and no row of the group is read again. The first rows of an order are kept themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.plan import COUNT, Filter, Keys, Net, Plan, Project, Repeat, Restrict, Unary, counted, pick, union
from deferred.algebra.scalar import Scalar, column, conjunction, integer, product, same

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.group import Aggregate
    from deferred.algebra.window import Limit

EXTREMES = ("min", "max")


@dataclass(frozen=True, eq=False)
class Stored(Plan):
    """The rows of a support table, as they are at s_i."""

    name: str
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids


@dataclass(frozen=True, eq=False)
class Kept(Unary):
    """E, of which every row is kept once with its count: for what must look at all rows when one of them changes.

    The base tables are not read for it, except through the changes; E may be a join of many.
    """

    name: str
    bitwise: Mapping[str, str] = field(default_factory=dict)

    @property
    def maintained(self) -> str:
        return "kept values"

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(E), netted; the counts of its rows move by it, and rows whose count comes to nothing go."""
        from deferred.algebra.delta import Upkeep

        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(Net(change, self.bitwise))
        touched = _looked_up(self.stored, Keys.same(change, self.columns))
        both = union([touched, change], self.stored.columns)
        assert both is not None
        rows = d.shared(Filter(Net(both, self.bitwise), exp.GT(this=column(COUNT), expression=integer(0))))
        d.supports[self.name] = Upkeep(rows, _without(change, rows, self.columns), self.columns)
        return change

    def restricted(self, keys: Keys) -> Plan:
        return Restrict(self, keys)

    def past(self, keys: Keys | None) -> Plan | None:
        return Repeat(_looked_up(self.stored, keys))

    def present(self, d: Differentiator, keys: Keys | None) -> Plan | None:
        return Repeat(_moved_on(d, self, self.stored, keys))

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read above it, without the texts that tell their values apart."""
        return self.columns[:len(self.columns) - len(self.bitwise)]

    @property
    def stored(self) -> Stored:
        return Stored(self.name, (*self.columns, COUNT))

    @property
    def contents(self) -> Plan:
        """What its support table holds, computed from E."""
        return Net(counted(self.child), self.bitwise)


@dataclass(frozen=True)
class Part:
    """One kept number of a group: `kind` is count, sum, min or max of a column, or rows, the number of its rows."""

    id: str
    kind: str
    type: str
    argument: str | None = None

    def call(self) -> Scalar:
        """The part computed from the rows of a group."""
        if self.kind == "rows":
            return exp.Anonymous(this="COUNT", expressions=[exp.Star()])
        assert self.argument is not None
        value: Scalar = column(self.argument)
        if self.kind == "sum":
            return self.typed(_or_zero(_sum(self.typed(value))))
        return exp.Anonymous(this=self.kind.upper(), expressions=[value])

    def typed(self, value: Scalar) -> Scalar:
        return exp.cast(value, self.type, dialect="spark")


@dataclass(frozen=True)
class Support:
    """What a counted aggregate keeps: its keys, and parts of which `finals` makes each output."""

    name: str
    parts: tuple[Part, ...]
    finals: tuple[tuple[str, Scalar], ...]

    @property
    def rows(self) -> str:
        return next(part.id for part in self.parts if part.kind == "rows")


def parts_of(node: Aggregate) -> Plan:
    """The contents of a counted aggregate's support table, computed from its input."""
    from deferred.algebra.group import Aggregate

    assert node.support is not None
    return Aggregate(node.child, node.keys, tuple((part.id, part.call()) for part in node.support.parts))


def counted_delta(node: Aggregate, d: Differentiator, change: Plan) -> Plan:
    """Δ(γ(E)) from the kept parts: new parts = old parts + Σ over Δ(E), at the groups that Δ(E) touches.

    Counts and sums are taken back exactly. A minimum or maximum is taken back unless a deleted value reaches it; only
    such groups are read again, New(E|K), and only when there are any.
    """
    from deferred.algebra.delta import Upkeep

    support = node.support
    assert support is not None
    stored = _parts_stored(node)
    kept = stored.columns
    if any(part.kind in EXTREMES for part in support.parts):
        # A value that Δ(E) both inserts and deletes was never there, and must not be taken for the best inserted one.
        read = tuple(dict.fromkeys((*node.keys, *(part.argument for part in support.parts if part.argument))))
        change = Net(pick(change, (*read, COUNT)), d.bitwise(read))
    moved = d.shared(_moved(node, support, change))
    touched = _looked_up(stored, Keys.same(moved, node.keys) if node.keys else None)
    both = d.shared(_together(node, support, moved, touched))
    old = pick(Filter(both, exp.Not(this=_is_null(column(support.rows)))), kept)

    unsafe = _unsafe(support)
    new: list[Plan] = []
    if unsafe is None:
        new.append(_advanced(node, support, both))
    else:
        known = exp.Anonymous(this="COALESCE", expressions=[unsafe, exp.false()])
        new.append(_advanced(node, support, Filter(both, exp.Not(this=known.copy()))))
        asked = d.shared(Project(Filter(both, known), (*((k, column(k)) for k in node.keys), (MARK, exp.true()))))
        rows = d.shared(node.child.restricted(Keys.same(asked, node.keys)) if node.keys else node.child, when=asked)
        again = parts_of(replace(node, child=rows))
        if not node.keys:
            from deferred.algebra.join import Join

            again = pick(Join((again, asked)), kept)
        new.append(again)
    parts = union(new, kept)
    assert parts is not None
    current = d.shared(parts)
    d.supports[support.name] = Upkeep(current, _without(both, current, node.keys), node.keys)
    return d.difference(_shown(node, support, current), _shown(node, support, old), node.columns)


def counted_past(node: Aggregate, keys: Keys | None) -> Plan:
    """Old(γ(E)|K), from the parts at s_i."""
    return _asked_for(node, keys, lambda own: _looked_up(_parts_stored(node), own))


def counted_present(node: Aggregate, d: Differentiator, keys: Keys | None) -> Plan:
    """New(γ(E)|K), from the parts as they are now."""
    return _asked_for(node, keys, lambda own: _moved_on(d, node, _parts_stored(node), own))


def _asked_for(node: Aggregate, keys: Keys | None, parts: Callable[[Keys | None], Plan]) -> Plan:
    """The groups that keys ask for: looked up by the grouping columns, compared above by what else they name."""
    own = None if keys is None else keys.within(node.keys)
    assert node.support is not None
    shown = _shown(node, node.support, parts(own))
    return shown if keys is None or (own is not None and own.completes(keys)) else Restrict(shown, keys)


def _parts_stored(node: Aggregate) -> Stored:
    assert node.support is not None
    return Stored(node.support.name, (*node.keys, *(part.id for part in node.support.parts)))


def _looked_up(plan: Plan, keys: Keys | None) -> Plan:
    return plan if keys is None else Restrict(plan, keys)


def _moved_on(d: Differentiator, node: Plan, stored: Stored, keys: Keys | None) -> Plan:
    """The rows that a support table holds at s_c: those that have moved, and the stored ones that have not."""
    assert d.has_delta(node), "a node's change comes before its new state"
    upkeep = d.supports.get(stored.name)
    if upkeep is None:
        return _looked_up(stored, keys)
    rows = _looked_up(upkeep.rows, keys)
    if not upkeep.keys:
        return rows
    left = _looked_up(stored, keys)
    for moved in (upkeep.rows, upkeep.gone):
        if moved is not None:
            left = _except_for(left, moved, upkeep.keys)
    both = union([left, rows], stored.columns)
    assert both is not None
    return both


MARK = "_deferred_again"
MOVED = "_deferred_moved_"
LOST = "_deferred_lost_"


def _moved(node: Aggregate, support: Support, change: Plan) -> Plan:
    """What Δ(E) adds to each part of each touched group; for extremes, the best inserted and the best deleted value."""
    from deferred.algebra.group import Aggregate

    outputs: list[tuple[str, Scalar]] = []
    count = column(COUNT)
    for part in support.parts:
        if part.kind == "rows":
            outputs.append((MOVED + part.id, _sum(count)))
            continue
        assert part.argument is not None
        value = column(part.argument)
        if part.kind == "count":
            outputs.append((MOVED + part.id, _sum(_case(_is_null(value), integer(0), count))))
        elif part.kind == "sum":
            times = exp.cast(count.copy(), "DECIMAL(9, 0)", dialect="spark")
            outputs.append((MOVED + part.id, part.typed(_or_zero(_sum(product(value, times))))))
        else:
            for prefix, sign in ((MOVED, exp.GT), (LOST, exp.LT)):
                chosen = _case(sign(this=count.copy(), expression=integer(0)), value, exp.Null())
                outputs.append((prefix + part.id, exp.Anonymous(this=part.kind.upper(), expressions=[chosen])))
    return Aggregate(change, node.keys, tuple(outputs))


def _together(node: Aggregate, support: Support, moved: Plan, old: Plan) -> Plan:
    """Each touched group with what it had, NULL where it is new."""
    from deferred.algebra.outer import LEFT, OuterJoin

    renamed = {k: f"_deferred_old_{k}" for k in node.keys}
    side = Project(old, (*((renamed[k], column(k)) for k in node.keys),
                         *((part.id, column(part.id)) for part in support.parts)))
    condition = conjunction(same(column(k), column(renamed[k])) for k in node.keys)
    joined = OuterJoin(moved, side, LEFT, condition if condition is not None else exp.true())
    return pick(joined, (*moved.columns, *(part.id for part in support.parts)))


def _advanced(node: Aggregate, support: Support, both: Plan) -> Plan:
    """Old parts and what was added, as new parts; groups that have no row left are not there."""
    outputs: list[tuple[str, Scalar]] = [(k, column(k)) for k in node.keys]
    for part in support.parts:
        old, more = column(part.id), column(MOVED + part.id)
        if part.kind in EXTREMES:
            best = "LEAST" if part.kind == "min" else "GREATEST"
            outputs.append((part.id, exp.Anonymous(this=best, expressions=[old, more])))
        else:
            added = exp.Add(this=_or_zero(old), expression=_or_zero(more))
            outputs.append((part.id, part.typed(added)))
    plan: Plan = Project(both, tuple(outputs))
    if node.keys:
        plan = Filter(plan, exp.GT(this=column(support.rows), expression=integer(0)))
    return plan


def _unsafe(support: Support) -> Scalar | None:
    """Whether a deleted value reaches a kept extreme, so that the next one is only in the rows themselves."""
    reached: Scalar | None = None
    for part in support.parts:
        if part.kind in EXTREMES:
            compare = exp.LTE if part.kind == "min" else exp.GTE
            reach = compare(this=column(LOST + part.id), expression=column(part.id))
            reached = reach if reached is None else exp.Or(this=reached, expression=reach)
    return None if reached is None else exp.Paren(this=reached)


def _without(both: Plan, current: Plan, keys: Sequence[str]) -> Plan | None:
    """The keys of touched groups that are gone."""
    return _except_for(pick(both, keys), current, keys) if keys else None


def _except_for(plan: Plan, others: Plan, keys: Sequence[str]) -> Plan:
    """The rows of a plan whose keys are not among those of the others."""
    from deferred.algebra.outer import ANTI, OuterJoin

    renamed = {k: f"_deferred_new_{k}" for k in keys}
    side = Project(others, tuple((renamed[k], column(k)) for k in keys))
    condition = conjunction(same(column(k), column(renamed[k])) for k in keys)
    assert condition is not None
    return OuterJoin(plan, side, ANTI, condition)


def _shown(node: Aggregate, support: Support, parts: Plan) -> Plan:
    """The aggregate's own rows, made of kept parts."""
    return Project(parts, (*((k, column(k)) for k in node.keys), *support.finals))


def limit_delta(node: Limit, d: Differentiator, change: Plan) -> Plan:
    """Δ(λ(E)) from the kept first rows: those and Δ(E) hold the new first rows, unless a kept row has gone.

    Then, and only if there was more than what is kept, E is asked again.
    """
    from deferred.algebra.delta import Upkeep
    from deferred.algebra.outer import ANTI, SEMI, OuterJoin

    assert node.support is not None
    assert node.count is not None
    size = node.count + node.offset
    columns = node.columns
    kept = d.shared(Stored(node.support, columns))
    gone = Filter(change, exp.LT(this=column(COUNT), expression=integer(0)))
    renamed = {c: f"_deferred_gone_{c}" for c in columns}
    hit = OuterJoin(kept, Project(gone, tuple((renamed[c], column(c)) for c in columns)), SEMI,
                    conjunction(same(column(c), column(renamed[c])) for c in columns) or exp.true())
    full = _count_of(kept, size)
    asked = d.shared(_both(hit, full))
    candidates = union([counted(kept), change], (*columns, COUNT))
    assert candidates is not None
    positive = Filter(Net(candidates, d.bitwise(columns)), exp.GT(this=column(COUNT), expression=integer(0)))
    first = replace(node, count=size, offset=0, support=None)
    merged: Plan = OuterJoin(replace(first, child=Repeat(positive)), asked, ANTI, exp.true())
    again = replace(first, child=d.shared(node.child, when=asked))
    new = union([merged, again], columns)
    assert new is not None
    current = d.shared(new)
    d.supports[node.support] = Upkeep(current, None, ())
    return d.difference(_first_of(node, current), _first_of(node, kept), columns)


def limit_past(node: Limit, keys: Keys | None) -> Plan:
    """Old(λ(E)|K), of the kept rows."""
    assert node.support is not None
    return _looked_up(_first_of(node, Stored(node.support, node.columns)), keys)


def limit_present(node: Limit, d: Differentiator, keys: Keys | None) -> Plan:
    """New(λ(E)|K), of the kept rows as they are now."""
    assert node.support is not None
    return _looked_up(_first_of(node, _moved_on(d, node, Stored(node.support, node.columns), None)), keys)


def _first_of(node: Limit, kept: Plan) -> Plan:
    return replace(node, child=kept, support=None)


def _count_of(kept: Plan, size: int) -> Plan:
    """One row when at least `size` rows are kept, none otherwise."""
    from deferred.algebra.group import Aggregate

    total = Aggregate(kept, (), ((MARK, exp.Anonymous(this="COUNT", expressions=[exp.Star()])),))
    return Filter(total, exp.GTE(this=column(MARK), expression=integer(size)))


def _both(hit: Plan, full: Plan) -> Plan:
    from deferred.algebra.join import Join

    return pick(Join((full, hit)), (MARK,))


def _sum(value: Scalar) -> Scalar:
    return exp.Anonymous(this="SUM", expressions=[value.copy()])


def _or_zero(value: Scalar) -> Scalar:
    return exp.Anonymous(this="COALESCE", expressions=[value.copy(), exp.Literal.number(0)])


def _is_null(value: Scalar) -> Scalar:
    return exp.Is(this=value.copy(), expression=exp.Null())


def _case(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    return exp.Case(ifs=[exp.If(this=condition, true=then.copy())], default=otherwise.copy())
