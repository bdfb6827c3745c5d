"""E ⋉ K: the rows of E whose key occurs in a small set of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.nodes import Derived
from deferred.algebra.plan import Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import Scalar, rewrite

if TYPE_CHECKING:
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation


@dataclass(frozen=True, eq=False)
class Restrict(Derived):
    """E ⋉ K: the rows of E whose key occurs in K, with their multiplicities."""

    child: Plan
    keys: Keys

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child, self.keys.plan)

    def with_children(self, children: Sequence[Plan]) -> Plan:
        child, keys = children
        return Restrict(child, replace(self.keys, plan=keys))

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return tuple(value for pair in self.keys.on for value in pair)

    def origin(self, name: str) -> Origin | None:
        return self.child.origin(name)

    def notation(self, labels: Labels) -> str:
        keys = ", ".join(labels.scalar(mine) for mine, _ in self.keys.on)
        return labels.infix(f"⋉[{keys}]", self.children)

    def evaluate(self, e: Evaluation) -> Bag:
        """Rows are compared as Python compares them: None is None, which is <=>."""
        mine = [e.value(value, self.columns) for value, _ in self.keys.on]
        theirs = [e.value(value, self.keys.plan.columns) for _, value in self.keys.on]
        keys = {tuple(value(row) for value in theirs) for row in e(self.keys.plan)}
        return Counter({row: n for row, n in e(self.child).items() if tuple(value(row) for value in mine) in keys})

    def sql(self, w: Writer) -> exp.Query:
        from deferred.algebra.operators.temporary import Stored

        stored = self.child
        if isinstance(stored, Stored) and used(*(mine for mine, _ in self.keys.on)) <= set(stored.keys):
            # All rows of a key stay or go, so they can be looked up before the newest of them is found.
            fetched = w.fetched(stored, self.keys)
            if fetched is not None:
                return w.newest(stored, bags.select(map(bags.column, w.held(stored)), fetched))
            return w.newest(stored, self._matching(w, w.stored(stored.name), w.held(stored)))
        return self._matching(w, w.below(self.child, "l"), self.columns)

    def _matching(self, w: Writer, source: exp.Expr, columns: Sequence[str]) -> exp.Select:
        """A semi-join; or, where the keys are few and known, a condition, which needs no join and skips files.

        Beside the join, ranges of its keys as literals skip files.
        """
        query = bags.select([bags.column(c, "l") for c in columns], source, "l")
        listed = w.one_of(self.keys)
        if listed is not None:
            return query.where(_of(w, "l", listed), copy=False)
        same = [exp.NullSafeEQ(this=_of(w, "l", a), expression=_of(w, "r", b)) for a, b in self.keys.on]
        query.append(
            "joins",
            exp.Join(this=w.below(self.keys.plan, "r"), side="LEFT", kind="SEMI", on=exp.and_(*same, copy=False)),
        )
        for mine, theirs in self.keys.on:
            near = w.near(mine, self.keys.plan, theirs)
            if near is not None:
                query.where(_of(w, "l", near), copy=False)
        return w.broadcast(query, "r")


def _of(w: Writer, alias: str, expression: Scalar) -> exp.Expr:
    """An expression over the columns of one side; the other side may have columns of the same names."""
    qualified = rewrite(
        expression, lambda node: bags.column(node.name, alias) if isinstance(node, exp.Column) else None
    )
    return qualified if isinstance(qualified, exp.Column) else exp.Paren(this=w.scalar(qualified))
