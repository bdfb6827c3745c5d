"""μ: rows made out of one row, by explode and similar functions. Linear, like a projection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT
from deferred.algebra.nodes import Barrier, RowByRow, Unary
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import Scalar

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Generate(RowByRow, Barrier, Unary):
    """Every row of E joined with the rows that a generator makes from it; with `outer`, with NULLs if it makes none."""

    generator: Scalar
    ids: tuple[str, ...]
    outer: bool = False

    one_row = False

    called = "a generator"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *self.ids)

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return (self.generator,)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ((needed & frozenset(self.child.columns)) | used(self.generator),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(μ(E)) = μ(Δ(E)): a generator looks at one row, so counts are carried along."""
        change = d.delta(self.child)
        return None if change is None else pick(replace(self, child=change), (*self.columns, COUNT))

    def restricted(self, keys: Keys) -> Plan:
        """μ(E) ⋉ K = μ(E ⋉ K) on columns of E."""
        plain = keys.plain
        below = None if plain is None else plain.within(self.child.columns)
        plan = self if below is None else replace(self, child=self.child.restricted(below))
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        child, values = u.plan(self.child)
        return replace(self, child=child, generator=u.put(self.generator, values)), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [[c.apart(demand, self.child.columns) for demand in asked]]

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        call = labels.computed("generated", self.generator)
        return {mine: call if len(self.ids) == 1 else f"{call}.{i}" for i, mine in enumerate(self.ids, start=1)}

    def notation(self, labels: Labels) -> str:
        outer = "outer " if self.outer else ""
        return f"μ[{outer}{labels.scalar(self.generator)}]({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        name = str(self.generator.this).lower()
        (argument,) = self.generator.expressions
        array = e.value(argument, self.child.columns)
        outer = self.outer or name.endswith("_outer")
        result: Bag = Counter()
        for row, n in e(self.child).items():
            made = list(_generated(name.removesuffix("_outer"), array(row)))
            for new in made or ([(None,) * len(self.ids)] if outer else []):
                result[row + new] += n
        return result

    def sql(self, w: Writer) -> exp.Query:
        query = bags.select(map(bags.column, self.columns), w.below(self.child, "q"))
        names = [exp.to_identifier(name, quoted=True) for name in self.ids]
        alias = exp.TableAlias(this=exp.to_identifier("g"), columns=names)
        query.append("laterals", exp.Lateral(this=w.scalar(self.generator), view=True, outer=self.outer, alias=alias))
        return query


def _generated(name: str, array: Iterable[Any] | None) -> Iterable[tuple[Any, ...]]:
    """The rows that explode or posexplode makes from an array; none from NULL."""
    if name == "explode":
        return ((element,) for element in array or ())
    if name == "posexplode":
        return enumerate(array or ())
    raise NotImplementedError(f"The reference evaluator does not support {name}.")
