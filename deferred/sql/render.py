"""From plan to SQL text: one SELECT an operator, nested. What a propagate runs and what `explain` shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Protocol

from sqlglot import exp

from deferred.algebra.delta import Program
from deferred.algebra.generate import Generate
from deferred.algebra.group import Aggregate
from deferred.algebra.join import Join
from deferred.algebra.outer import OuterJoin
from deferred.algebra.plan import (
    COUNT,
    Change,
    Filter,
    Net,
    Plan,
    Project,
    Ref,
    Repeat,
    Restrict,
    Scan,
    UnionAll,
    Values,
)
from deferred.algebra.scalar import Scalar, columns_of, conjunction, conjuncts, rewrite
from deferred.algebra.sets import Distinct, SetOperation
from deferred.algebra.support import Kept, Stored
from deferred.algebra.window import Limit, Window
from deferred.sql.dialect import ViewSQL, told_apart


class Sources(Protocol):
    """Where the leaves of a plan are read: a base table at its cut, a net log, a temporary result."""

    def scan(self, table: str) -> str: ...

    def change(self, table: str) -> str: ...

    def ref(self, name: str) -> str: ...

    def stored(self, name: str) -> str: ...


@dataclass(frozen=True)
class Names:
    """Leaves under readable names, for `explain`."""

    def scan(self, table: str) -> str:
        return f"`{table}`"

    def change(self, table: str) -> str:
        return f"`changes of {table}`"

    def ref(self, name: str) -> str:
        return f"`{name}`"

    def stored(self, name: str) -> str:
        return f"`support {name}`"


def linked(inputs: Sequence[Plan], conditions: Sequence[Scalar]) -> list[Plan]:
    """The inputs of a join, each after one that a condition links it to where there is one, the first one first."""
    left = list(inputs)
    ordered = [left.pop(0)]
    while left:
        have = {c for plan in ordered for c in plan.columns}
        found = next((plan for plan in left for condition in conditions
                      if columns_of(condition) & have and columns_of(condition) & set(plan.columns)
                      and columns_of(condition) <= have | set(plan.columns)), left[0])
        left.remove(found)
        ordered.append(found)
    return ordered


class Renderer:
    """Renders plans for Spark. `broadcast` says that changes are small, so Spark should send them to the data."""

    dialect: object = ViewSQL
    semi_join = "LEFT SEMI JOIN"
    anti_join = "LEFT ANTI JOIN"

    def __init__(self, sources: Sources, broadcast: bool = True) -> None:
        self.sources = sources
        self.broadcast = broadcast

    # ---- pieces

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def scalar(self, expression: Scalar) -> str:
        return expression.sql(dialect=self.dialect)  # type: ignore[arg-type]

    def scalar_of(self, alias: str, expression: Scalar) -> str:
        """An expression over the columns of one side; the other may have columns of the same names."""
        if isinstance(expression, exp.Column):
            return f"{alias}.{self.quote(expression.name)}"
        return "(" + self.scalar(rewrite(expression, lambda node: exp.column(node.name, alias, quoted=True)
                                 if isinstance(node, exp.Column) else None)) + ")"

    def list(self, names: Iterable[str], of: str = "") -> str:
        prefix = f"{of}." if of else ""
        return ", ".join(prefix + self.quote(name) for name in names)

    def below(self, plan: Plan, alias: str) -> str:
        """A subplan as an item of FROM."""
        if isinstance(plan, Ref):
            return f"{self.sources.ref(plan.name)} AS {alias}"
        return f"({self.render(plan)}) AS {alias}"

    def hint(self, alias: str) -> str:
        return f"/*+ BROADCAST({alias}) */ " if self.broadcast else ""

    def repeated(self, plan: Repeat) -> str:
        source = self.below(plan.child, "q")
        return (f"SELECT {self.list(plan.columns)} FROM {source} "
                f"LATERAL VIEW EXPLODE(ARRAY_REPEAT(0, CAST({self.quote(COUNT)} AS INT))) r AS `_deferred_copy`")

    # ---- operators

    @singledispatchmethod
    def render(self, plan: Plan) -> str:
        raise NotImplementedError(type(plan).__name__)

    @render.register
    def _(self, plan: Scan) -> str:
        columns = ", ".join(f"{self.quote(n)} AS {self.quote(i)}" for n, i in zip(plan.names, plan.ids, strict=True))
        return f"SELECT {columns} FROM {self.sources.scan(plan.table)}"

    @render.register
    def _(self, plan: Change) -> str:
        columns = ", ".join(f"{self.quote(n)} AS {self.quote(i)}" for n, i in zip(plan.names, plan.ids, strict=True))
        return f"SELECT {columns}, {self.quote(COUNT)} FROM {self.sources.change(plan.table)}"

    @render.register
    def _(self, plan: Ref) -> str:
        return f"SELECT {self.list(plan.columns)} FROM {self.sources.ref(plan.name)}"

    @render.register
    def _(self, plan: Stored) -> str:
        return f"SELECT {self.list(plan.columns)} FROM {self.sources.stored(plan.name)}"

    @render.register
    def _(self, plan: Kept) -> str:
        return self.render(plan.child)

    @render.register
    def _(self, plan: Values) -> str:
        rows = [", ".join(f"{self.scalar(e)} AS {self.quote(i)}" for e, i in zip(row, plan.ids, strict=True))
                for row in plan.rows]
        if not rows:
            nothing = ", ".join(f"NULL AS {self.quote(i)}" for i in plan.ids)
            return f"SELECT {nothing} WHERE FALSE"
        return " UNION ALL ".join(f"SELECT {row}" for row in rows)

    @render.register
    def _(self, plan: Project) -> str:
        outputs = ", ".join(f"{self.scalar(e)} AS {self.quote(name)}" for name, e in plan.outputs)
        return f"SELECT {outputs} FROM {self.below(plan.child, 'q')}"

    @render.register
    def _(self, plan: Filter) -> str:
        source = self.below(plan.child, "q")
        return f"SELECT {self.list(plan.columns)} FROM {source} WHERE {self.scalar(plan.condition)}"

    @render.register
    def _(self, plan: UnionAll) -> str:
        return self._combined("UNION ALL", plan.inputs, plan.ids)

    @render.register
    def _(self, plan: SetOperation) -> str:
        operator = f"{plan.kind} ALL" if plan.every else plan.kind
        return self._combined(operator, (plan.left, plan.right), plan.ids)

    @render.register
    def _(self, plan: Distinct) -> str:
        return f"SELECT DISTINCT {self.list(plan.columns)} FROM {self.below(plan.child, 'q')}"

    @render.register
    def _(self, plan: Join) -> str:
        """Each conjunct at the first join where all its columns are there; a change leads, and is broadcast."""
        pending = conjuncts(plan.condition)
        inputs = linked(plan.inputs, pending)
        have = set(inputs[0].columns)
        joined = self.below(inputs[0], "j0")
        now = [p for p in pending if columns_of(p) <= have]
        where = list(now)
        pending = [p for p in pending if p not in now]
        for i, right in enumerate(inputs[1:], start=1):
            have |= set(right.columns)
            ready = [p for p in pending if columns_of(p) <= have]
            pending = [p for p in pending if p not in ready]
            condition = conjunction(ready)
            kind = "CROSS JOIN" if condition is None else "INNER JOIN"
            joined += f" {kind} {self.below(right, f'j{i}')}"
            joined += f" ON {self.scalar(condition)}" if condition is not None else ""
        filter_ = conjunction(where)
        hint = self.hint("j0") if COUNT in inputs[0].columns else ""
        return (f"SELECT {hint}{self.list(plan.columns)} FROM {joined}"
                + (f" WHERE {self.scalar(filter_)}" if filter_ is not None else ""))

    @render.register
    def _(self, plan: OuterJoin) -> str:
        words = {"LEFT": "LEFT JOIN", "FULL": "FULL JOIN", "SEMI": self.semi_join, "ANTI": self.anti_join}
        hint = self.hint("l") if COUNT in plan.left.columns else ""
        return (f"SELECT {hint}{self.list(plan.columns)} FROM {self.below(plan.left, 'l')} {words[plan.kind]} "
                f"{self.below(plan.right, 'r')} ON {self.scalar(plan.condition)}")

    @render.register
    def _(self, plan: Window) -> str:
        functions = ", ".join(f"{self.scalar(f)} AS {self.quote(name)}" for name, f in plan.decided)
        return f"SELECT {self.list(plan.child.columns)}, {functions} FROM {self.below(plan.child, 'q')}"

    @render.register
    def _(self, plan: Limit) -> str:
        order = ", ".join(self.scalar(o) for o in plan.decided)
        limit = f" LIMIT {plan.count}" if plan.count is not None else ""
        offset = f" OFFSET {plan.offset}" if plan.offset else ""
        return f"SELECT {self.list(plan.columns)} FROM {self.below(plan.child, 'q')} ORDER BY {order}{limit}{offset}"

    @render.register
    def _(self, plan: Generate) -> str:
        outer = "OUTER " if plan.outer else ""
        source = self.below(plan.child, "q")
        return (f"SELECT {self.list(plan.columns)} FROM {source} "
                f"LATERAL VIEW {outer}{self.scalar(plan.generator)} g AS {self.list(plan.ids)}")

    @render.register
    def _(self, plan: Aggregate) -> str:
        outputs = [self.quote(k) for k in plan.keys]
        outputs += [f"{self.scalar(e)} AS {self.quote(name)}" for name, e in plan.outputs]
        grouping = f" GROUP BY {self.list(plan.keys)}" if plan.keys else ""
        return f"SELECT {', '.join(outputs)} FROM {self.below(plan.child, 'q')}{grouping}"

    @render.register
    def _(self, plan: Restrict) -> str:
        on = " AND ".join(f"{self.scalar_of('l', a)} IS NOT DISTINCT FROM {self.scalar_of('r', b)}"
                          for a, b in plan.keys.on)
        return (f"SELECT {self.hint('r')}{self.list(plan.columns, 'l')} FROM {self.below(plan.child, 'l')} "
                f"{self.semi_join} {self.below(plan.keys.plan, 'r')} ON {on}")

    @render.register
    def _(self, plan: Net) -> str:
        *columns, count = plan.columns
        outputs, keys = [], []
        for name in columns:
            quoted = self.quote(name)
            keys.extend(told_apart(quoted, plan.bitwise.get(name, "")))
            outputs.append(f"ANY_VALUE({quoted}) AS {quoted}" if name in plan.bitwise else quoted)
        total = self.quote(count)
        outputs.append(f"CAST(SUM({total}) AS BIGINT) AS {total}")
        grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
        summed = f"SELECT {', '.join(outputs)} FROM {self.below(plan.child, 'q')}{grouping}"
        return f"SELECT {self.list(plan.columns)} FROM ({summed}) AS summed WHERE {total} <> 0"

    @render.register
    def _(self, plan: Repeat) -> str:
        return self.repeated(plan)

    def _combined(self, operator: str, inputs: Sequence[Plan], ids: Sequence[str]) -> str:
        """Inputs by position, under the ids of the first."""
        first, *others = inputs
        renamed = ", ".join(f"{self.quote(old)} AS {self.quote(new)}"
                            for old, new in zip(first.columns, ids, strict=True))
        texts = [f"SELECT {renamed} FROM {self.below(first, 'q')}", *(self.render(plan) for plan in others)]
        return f"SELECT {self.list(ids)} FROM (" + f" {operator} ".join(f"({t})" for t in texts) + ") AS u"

    # ---- programs

    def statement(self, program: Program) -> str | None:
        """A whole program as one SQL statement, its steps as common table expressions."""
        if program.result is None:
            return None
        steps = ",\n".join(f"{self.sources.ref(s.name)} AS (\n  {self.render(s.plan)}\n)" for s in program.steps)
        result = self.render(program.result)
        return f"WITH {steps}\n{result}" if steps else result
