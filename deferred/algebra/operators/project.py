"""Π: one expression per output column. Linear."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.nodes import RowByRow, Unary
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import Scalar, column, is_column, negated, same, substitute

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Project(RowByRow, Unary):
    """Π: one expression per output column; keeps duplicates."""

    outputs: tuple[tuple[str, Scalar], ...]

    called = "SELECT"

    @property
    def title(self) -> str:
        """Not SELECT: a plan in words is not to be taken for a query."""
        return "projection"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.outputs)

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return tuple(e for _, e in self.outputs)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        """A key of E, if all its columns pass through as they are."""
        below = self.child.unique_key
        if below is None:
            return None
        passed = {e.name: out for out, e in self.outputs if is_column(e)}
        return tuple(passed[c] for c in below) if set(below) <= passed.keys() else None

    @property
    def one_row(self) -> bool:
        return self.child.one_row

    def origin(self, name: str) -> Origin | None:
        expression = dict(self.outputs)[name]
        return self.child.origin(expression.name) if is_column(expression) else None

    def pulled_up(self) -> tuple[Plan, list[Scalar]]:
        child, parts = self.child.pulled_up()
        if not parts:
            return (self if child is self.child else Project(child, self.outputs)), []
        extra = sorted((used(*parts) & set(child.columns)) - set(self.columns))
        return Project(child, (*self.outputs, *((c, column(c)) for c in extra))), parts

    def joined_on(self, equality: Scalar) -> Plan | None:
        return None

    def with_join_condition(self, change: Callable[[Scalar], Scalar]) -> Plan:
        return self

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (used(*(e for _, e in needed_outputs(self.outputs, needed))),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        (child,) = children
        return Project(child, needed_outputs(self.outputs, needed))

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(Π(E)) = Π(Δ(E)), counts carried along: Figure 2's rule for Π, both signs at once."""
        change = d.delta(self.child)
        return None if change is None else Project(change, (*self.outputs, (COUNT, column(COUNT))))

    def restricted(self, keys: Keys) -> Plan:
        """Π(E) ⋉ K = Π(E ⋉ K), with the expressions of Π in place of its columns."""
        below = keys.through(dict(self.outputs))
        assert below is not None
        return Project(self.child.restricted(below), self.outputs)

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        child, values = u.plan(self.child)
        outputs = tuple((name, u.put(e, values)) for name, e in self.outputs)
        return Project(child, (*outputs, *u.carried(values))), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [[c.put(demand, dict(self.outputs)) for demand in asked]]

    def known(self, c: Conditions) -> Conjunction:
        """A column that is passed on is known by its new name, of the others how they are computed."""
        passed = {e.name: column(name) for name, e in reversed(self.outputs) if is_column(e)}
        names = c.names(self.child.columns) | passed
        computed = [(name, e) for name, e in self.outputs if not is_column(e) or passed[e.name].name != name]
        outputs = tuple(same(column(name), substitute(e, names)) for name, e in computed)
        return (*c.put(c.facts_of(self.child), names), *outputs)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {out: labels.computed(out, expression) for out, expression in self.outputs}

    def notation(self, labels: Labels) -> str:
        return f"Π[{labels.outputs(self.outputs)}]({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        outputs = [e.value(expression, self.child.columns) for _, expression in self.outputs]
        return e.mapped(e(self.child), lambda row: tuple(output(row) for output in outputs))

    def sql(self, w: Writer) -> exp.Query:
        outputs = [bags.alias(w.scalar(e), name) for name, e in self.outputs]
        return bags.select(outputs, w.below(self.child, "q"))


def needed_outputs(outputs: tuple[tuple[str, Scalar], ...], needed: frozenset[str]) -> tuple[tuple[str, Scalar], ...]:
    """The outputs that are needed, or the first one if none is."""
    return tuple(o for o in outputs if o[0] in needed) or outputs[:1]


def only_renames(plan: Plan) -> TypeGuard[Project]:
    """Whether a node is Π that passes columns on, perhaps under other names."""
    return isinstance(plan, Project) and all(is_column(e) for _, e in plan.outputs)


def below_renaming(plan: Plan) -> Plan:
    """What a plan is below all Π that only pass columns on."""
    while only_renames(plan):
        plan = plan.child
    return plan


def pick(plan: Plan, names: Sequence[str]) -> Plan:
    """The given columns of a plan, in that order."""
    return plan if tuple(names) == plan.columns else Project(plan, tuple((c, column(c)) for c in names))


def renamed(plan: Plan, names: Mapping[str, str]) -> Plan:
    """The columns of a plan that `names` lists, under the names that it gives."""
    return Project(plan, tuple((new, column(old)) for old, new in names.items()))


def signed(plan: Plan, times: int = 1) -> Plan:
    """A plain bag as a signed one, every row `times` times."""
    return Project(plan, (*((c, column(c)) for c in plan.columns), (COUNT, bigint(times))))


def minus(change: Plan) -> Plan:
    """A signed bag with its signs reversed."""
    return Project(change, (*((c, column(c)) for c in change.columns[:-1]), (COUNT, negated(column(COUNT)))))
