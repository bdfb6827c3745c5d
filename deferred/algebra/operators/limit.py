"""λ: the first rows of an order, after an offset.

- `KeptRows`: the first rows are kept; E is read again only when one of them is deleted.
- OFFSET without LIMIT has no last row, so everything is read: from the rows that are kept below it (kept.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.nodes import Barrier, Unary
from deferred.algebra.operators.aggregate import Aggregate
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.join import Join
from deferred.algebra.operators.outer_join import ANTI, SEMI, OuterJoin
from deferred.algebra.operators.project import Project, pick, renamed, signed
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.operators.signed import Net, Repeat
from deferred.algebra.operators.temporary import Stored
from deferred.algebra.operators.union_all import united
from deferred.algebra.operators.window import Window
from deferred.algebra.order import completed, sort_key
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer
from deferred.algebra.program import Upkeep
from deferred.algebra.scalar import Scalar, all_true, column, conjunction, is_column, same, substitute
from deferred.algebra.strategy import Keeping, Strategy, SupportTables
from deferred.algebra.support_tables import AGAIN, is_kept, looked_up, over_everything, rows_at_new_cut
from deferred.algebra.types import INTEGRAL

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.sharing import Sharing
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True)
class KeptRows(Keeping):
    """The first count + offset rows in a support table."""

    name: ClassVar[str] = "kept rows"
    support: str

    def contents(self, node: Limit) -> Plan:
        return node.first(node.child)

    def reads_again(self, node: Limit) -> bool:
        return True

    def carried_over(self, node: Limit, old: Plan, kept: Keeping, sharing: Sharing) -> Plan | None:
        """The first k rows of the first n ≥ k in the same order; ties are broken by the columns in their order.

        For more rows, let v be the highest value of the first column of the order among the kept ones. What comes
        before v is kept; the rest is read where the column is v or comes after it.
        """
        if not isinstance(old, Limit) or not isinstance(kept, KeptRows):
            return None
        pairs = sharing.columns(old.child, node.child)
        if pairs is None or tuple(map(pairs.get, node.columns)) != old.columns:
            return None
        order = [substitute(key, {new: column(c) for new, c in pairs.items()}) for key in node.order]
        if list(map(repr, order)) != list(map(repr, old.order)):
            return None
        stored = kept._stored(old)
        taken = sharing.taken(stored, pairs.items())
        if node.size <= old.size:
            return node.first(taken)
        rows, by = sharing.at_hand(stored), node.order[0]
        if rows is None or not is_column(by.this):
            return None
        parts = _from_the_last(by, [row[pairs[by.this.name]] for row in rows], sharing.new_types[by.this.name])
        if parts is None:
            return None
        before, others = parts
        return node.first(united([Filter(taken, before), Filter(node.child, others)], node.columns))

    def past(self, node: Limit, keys: Keys | None) -> Plan:
        return looked_up(node.over(self._stored(node)), keys)

    def present(self, node: Limit, d: Differentiator, keys: Keys | None) -> Plan:
        return looked_up(node.over(rows_at_new_cut(d, node, self._stored(node), None)), keys)

    def delta(self, node: Limit, d: Differentiator, change: Plan) -> Plan:
        """Δ(λ(E)) from the kept first rows: they and Δ(E) contain the new first rows, unless a kept row was deleted.

        In that case, and only if E may have more rows than those kept, E is read again.
        """
        columns = node.columns
        kept = d.shared(self._stored(node))
        reading = d.shared(self._read_again(node, kept, change))
        candidates = united([signed(kept), change], (*columns, COUNT))
        positive = Filter(Net(candidates, d.bitwise(columns)), exp.GT(this=column(COUNT), expression=bigint(0)))
        merged = OuterJoin(node.first(Repeat(positive)), reading, ANTI, exp.true())
        again = node.first(d.shared(node.child, when=reading))
        current = d.shared(united([merged, again], columns))
        d.supports[self.support] = Upkeep(current, None, ())
        return d.difference(node.over(current), node.over(kept), columns)

    def _read_again(self, node: Limit, kept: Plan, change: Plan) -> Plan:
        """Has rows if E must be read again: a kept row was deleted, and E had at least as many rows as are kept."""
        gone = Filter(change, exp.LT(this=column(COUNT), expression=bigint(0)))
        names = {c: f"_deferred_gone_{c}" for c in node.columns}
        identical = all_true(same(column(c), column(names[c])) for c in node.columns)
        hit = OuterJoin(kept, renamed(gone, names), SEMI, identical)
        total = Aggregate(kept, (), ((AGAIN, bags.call("COUNT", exp.Star())),))
        full = Filter(total, exp.GTE(this=column(AGAIN), expression=bigint(node.size)))
        return pick(Join((full, hit)), (AGAIN,))

    def _stored(self, node: Limit) -> Stored:
        return Stored(self.support, node.columns, ())


def _from_the_last(by: exp.Ordered, values: Sequence[Any], type_: str) -> tuple[Scalar, Scalar] | None:
    """The conditions that a column comes before the last of some values in an order, and that it does not.

    None where no value is there, where all rows do not come before it, and where it cannot be written exactly.
    """
    known = [value for value in values if value is not None]
    of, descending, nulls_first = by.this, bool(by.args.get("desc")), bool(by.args.get("nulls_first"))
    is_null = exp.Is(this=of.copy(), expression=exp.Null())
    if not known or type_.split("(")[0] not in (*INTEGRAL, "decimal", "date", "timestamp", "timestamp_ntz", "string"):
        return None
    if len(known) < len(values) and not nulls_first:
        return exp.Not(this=is_null), is_null.copy()
    last = exp.cast(exp.Literal.string(str((min if descending else max)(known))), type_, dialect="spark")
    less, more = (exp.GT, exp.LTE) if descending else (exp.LT, exp.GTE)
    before = less(this=of.copy(), expression=last)
    others = more(this=of.copy(), expression=last.copy())
    if nulls_first:
        return exp.or_(before, is_null, copy=False), others
    return before, exp.or_(others, is_null, copy=False)


@dataclass(frozen=True, eq=False)
class Limit(Barrier, Unary):
    """The first rows of E in an order, after an offset; ties are broken by the rows' own values."""

    order: tuple[exp.Ordered, ...]
    count: int | None
    offset: int = 0
    kept: KeptRows | None = None

    called = "LIMIT"
    row_by_row = False
    in_recursion = False
    one_row = False
    looked_up_by = ()

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return self.order

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.child.columns),)  # any column may break a tie

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(λ(E)) = λ(New(E)) − λ(Old(E)): the row that replaces a deleted first row must be read from E."""
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(change)
        if self.kept is not None:
            return self.kept.delta(self, d, change)
        new, old = d.states(self.child, change, None)
        return d.difference(replace(self, child=new), replace(self, child=old), self.columns)

    def restricted(self, keys: Keys) -> Plan:
        return Restrict(self, keys)

    @property
    def strategy(self) -> Strategy:
        return over_everything(self.child) if self.kept is None else self.kept

    def supported(self, tables: SupportTables) -> Plan:
        if self.count is None:
            return tables.over_kept_rows(self)
        return replace(self, kept=KeptRows(tables.names()))

    def reads(self, labels: Labels) -> str:
        tables = listed_tables(self)
        if self.kept is None:
            return "all kept rows, and no table" if is_kept(self.child) else f"its whole input: {tables}"
        return f"the changed rows, and the first {self.size} rows as kept; {tables} only where one of them has gone"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        """The first rows for each value: a row number within it, and a condition on that."""
        child, values = u.plan(self.child)
        number = u.new("int")
        over = exp.Window(
            this=exp.Anonymous(this="ROW_NUMBER"),
            partition_by=[column(v) for v in values.values()],
            order=exp.Order(expressions=[u.put(o, values) for o in self.order]),
            over="OVER",
        )
        plan = Window(child, tuple(values.values()), ((number, over),))
        parts: list[Scalar] = []
        if self.offset:
            parts.append(exp.GT(this=column(number), expression=exp.Literal.number(self.offset)))
        if self.count is not None:
            parts.append(exp.LTE(this=column(number), expression=exp.Literal.number(self.size)))
        condition = conjunction(parts)
        assert condition is not None
        kept = tuple((c, column(c)) for c in (*self.columns, *values.values()))
        return Project(Filter(plan, condition), kept), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """Any row may come before others, whatever is asked of the first ones."""
        return [c.ANY]

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    def figure2(self, f: Figure2) -> Pair:
        return f.recomputed(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        order = ", ".join(labels.scalar(key) for key in self.order)
        first = "" if self.count is None else f"; {self.count}"
        after = f" after {self.offset}" if self.offset else ""
        return f"λ[{order}{first}{after}]({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        rows = sorted(e(self.child).elements(), key=sort_key(e, self.without_ties, self.columns))
        return Counter(islice(rows, self.offset, None if self.count is None else self.size))

    def sql(self, w: Writer) -> exp.Query:
        query = bags.select(map(bags.column, self.columns), w.below(self.child, "q"))
        query.set("order", exp.Order(expressions=[w.scalar(key) for key in self.without_ties]))
        if self.count is not None:
            query.set("limit", exp.Limit(expression=exp.Literal.number(self.count)))
        if self.offset:
            query.set("offset", exp.Offset(expression=exp.Literal.number(self.offset)))
        return query

    @property
    def size(self) -> int:
        """How many rows decide the result."""
        assert self.count is not None
        return self.count + self.offset

    @property
    def without_ties(self) -> tuple[exp.Ordered, ...]:
        """The order with every tie broken by the rows' own values."""
        return completed(self.order, self.child.columns)

    def first(self, plan: Plan) -> Limit:
        """The rows that decide the result, of another input."""
        return replace(self, child=plan, count=self.size, offset=0, kept=None)

    def over(self, plan: Plan) -> Limit:
        """The same first rows of another input."""
        return replace(self, child=plan, kept=None)
