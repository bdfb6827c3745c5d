"""From plan to SQL: one SELECT per operator, nested. What a propagate runs and what `explain` shows.

Each operator writes itself (`Plan.sql`), as a sqlglot tree; here is where the leaves are read and how the tree becomes
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.operators import Stored, Temporary
from deferred.algebra.plan import Keys, Plan
from deferred.algebra.program import Loop, Program, Step
from deferred.algebra.scalar import Scalar
from deferred.sql.dialect import ViewSQL, parenthesised


class Leaves(Protocol):
    """Where the leaves of a plan are read: a base table at its cut, a net log, a temporary result, a support table."""

    def scan(self, table: str) -> exp.Expr: ...

    def change(self, table: str) -> exp.Expr: ...

    def temporary(self, name: str) -> exp.Expr: ...

    def stored(self, name: str) -> exp.Expr: ...


def named_table(name: str) -> exp.Table:
    """A table, view or temporary result by one name."""
    return exp.Table(this=exp.to_identifier(name, quoted=True))


class ReadableLeaves:
    """Leaves under readable names, for `explain`."""

    def scan(self, table: str) -> exp.Expr:
        return named_table(table)

    def change(self, table: str) -> exp.Expr:
        return named_table(f"changes of {table}")

    def temporary(self, name: str) -> exp.Expr:
        return named_table(name)

    def stored(self, name: str) -> exp.Expr:
        return named_table(f"support {name}")


class Renderer:
    """Renders plans for Spark. `small_changes` says that Spark should send changes to the data."""

    dialect: object = ViewSQL

    def __init__(self, leaves: Leaves, small_changes: bool = True) -> None:
        self.leaves = leaves
        self.small_changes = small_changes

    def render(self, plan: Plan) -> str:
        return self.text(self.query(plan))

    def text(self, tree: exp.Expr) -> str:
        # The tree is this renderer's own, so it need not be copied before it is written.
        return parenthesised(tree).sql(dialect=self.dialect, copy=False)  # type: ignore[arg-type]

    def statement(self, program: Program) -> str | None:
        """A whole program as one SQL statement, its steps as common table expressions; with rounds, one to be read."""
        if program.result is None:
            return None
        steps = ",\n".join(text for step in program.steps for text in self._named(step))
        result = self.render(program.result)
        return f"WITH {steps}\n{result}" if steps else result

    def _named(self, step: Step | Loop) -> list[str]:
        """A step as a common table expression; a loop as those of its first rows and of one round."""
        if isinstance(step, Step):
            return [self._as(step.name, step.plan)]
        newest = step.newest.name
        first = f"-- {newest}: the first rows; {step.name}: those of all rounds\n" + self._as(newest, step.first)
        within = [text for inner in step.steps for text in self._named(inner)]
        following = f"-- {newest}: the rows of the next round, until there are none\n" + self._as(newest, step.next)
        return [first, *within, following]

    def _as(self, name: str, plan: Plan) -> str:
        return f"{self.text(self.leaves.temporary(name))} AS (\n  {self.render(plan)}\n)"

    # ---- what operators ask for

    def query(self, plan: Plan) -> exp.Query:
        return plan.sql(self)

    def below(self, plan: Plan, alias: str) -> exp.Expr:
        source = self.temporary(plan.name) if isinstance(plan, Temporary) else self.query(plan)
        return bags.from_item(source, alias)

    def scalar(self, expression: Scalar) -> exp.Expr:
        return expression.copy()

    def scan(self, table: str) -> exp.Expr:
        return self.leaves.scan(table)

    def change(self, table: str) -> exp.Expr:
        return self.leaves.change(table)

    def temporary(self, name: str) -> exp.Expr:
        return self.leaves.temporary(name)

    def stored(self, name: str) -> exp.Expr:
        return self.leaves.stored(name)

    def fetched(self, stored: Stored, keys: Keys | None) -> exp.Expr | None:
        return None

    def held(self, stored: Stored) -> Sequence[str]:
        return stored.columns

    def newest(self, stored: Stored, rows: exp.Query) -> exp.Query:
        return rows

    def near(self, mine: Scalar, plan: Plan, theirs: Scalar) -> exp.Expr | None:
        return None

    def one_of(self, keys: Keys) -> exp.Expr | None:
        return None

    def broadcast(self, query: exp.Select, alias: str) -> exp.Select:
        if self.small_changes:
            hint = exp.JoinHint(this="BROADCAST", expressions=[exp.to_identifier(alias)])
            query.set("hint", exp.Hint(expressions=[hint]))
        return query

    def written_out(self, source: exp.Expr, columns: Sequence[str]) -> exp.Query:
        return bags.written_out(source, columns)
