"""Which nodes of a bound plan get a support table: counted aggregates, kept first rows, kept values and rows, sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from deferred.algebra.aggregates.calls import is_aggregate
from deferred.algebra.bags import COUNT
from deferred.algebra.operators import Aggregate, Counted, Distinct, GroupPart, Kept, KeptValues, Limit, Project, Window
from deferred.algebra.operators.aggregate import TOTAL_OVER_KEPT
from deferred.algebra.operators.counted import PARTS, Rows
from deferred.algebra.operators.good_counters import GoodCounters
from deferred.algebra.operators.kept import Auxiliary
from deferred.algebra.operators.levels import CountedLevels
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.recursion import Recursion, Reference
from deferred.algebra.operators.rederiving import DeleteRederive
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.plan import Plan, used
from deferred.algebra.scalar import Fresh, Scalar, column, columns_of, is_column, rewrite
from deferred.algebra.selfmaintenance import Promises, base_reads, narrowed, self_maintained
from deferred.algebra.support_tables import is_kept
from deferred.algebra.trees import as_trees
from deferred.algebra.types import compared_exactly, equality_is_coarser, has_no_order, is_not_stored, is_padded
from deferred.errors import UnsupportedSQLError
from deferred.options import TREE
from deferred.sql.counted_aggregates import Arguments, made_of_parts
from deferred.sql.grouping import calls_in
from deferred.sql.types import Types


@dataclass(frozen=True)
class Supported:
    """A plan with support tables, the types of all its columns, and what there is to say about it."""

    plan: Plan
    column_types: dict[str, str]
    notes: tuple[str, ...] = ()


def with_support_tables(
    plan: Plan, types: Types, column_types: Mapping[str, str], maintain: str, promises: Promises | None
) -> Supported:
    """The plan with a support table for every node that can use one, in the way that `maintain` asks for.

    With `promises` it gets auxiliary tables too, so that it reads no base table.
    """
    planner = _SupportPlanner(types, dict(column_types), keeps_sets=maintain == TREE)
    if promises is not None:
        plan = self_maintained(planner.visit(narrowed(plan)), promises, planner)
        unkept = ", ".join(sorted(base_reads(plan, planner.column_types)))
        if unkept:
            raise UnsupportedSQLError(f"maintain = 'self' is not possible: a change would read {unkept} again.")
        return Supported(plan, planner.column_types)
    notes: list[str] = []
    if planner.keeps_sets:
        plan, notes = as_trees(plan, planner)
    return Supported(planner.visit(plan), planner.column_types, tuple(notes))


@dataclass
class _SupportPlanner:
    """Gives the nodes of one plan their support tables (`SupportTables`), numbered in the order of the plan."""

    types: Types
    column_types: dict[str, str]
    keeps_sets: bool = False
    fresh: Fresh = field(default_factory=lambda: Fresh("p_"))
    names: Fresh = field(default_factory=lambda: Fresh("support"))
    sets: Fresh = field(default_factory=lambda: Fresh("good"))
    done: dict[Plan, Plan] = field(default_factory=dict)

    def visit(self, node: Plan) -> Plan:
        if node not in self.done:
            self.done[node] = node.with_children([self.visit(child) for child in node.children]).supported(self)
        return self.done[node]

    def counted(self, node: Aggregate) -> Plan:
        """An aggregate whose outputs are made of counts, exact sums and extremes keeps those in a support table."""
        arguments = Arguments(self.types, self.column_types, self.fresh)
        parts: dict[tuple[str, str | None], GroupPart] = {}

        def part(kind: str, type_: str, argument: str | None = None) -> GroupPart:
            if (kind, argument) not in parts:
                name = self.fresh()
                self.column_types[name] = type_
                parts[kind, argument] = PARTS[kind](name, type_, argument)
            return parts[kind, argument]

        part(Rows.kind, "bigint")
        finals = []
        for name, expression in node.outputs:
            made: dict[Scalar, Scalar] = {}
            for call in calls_in(expression):
                value = made_of_parts(call, part, arguments)
                if value is None:
                    return node if node.keys else self.over_kept_values(node)
                made[call] = value
            final = rewrite(expression, made.get)
            finals.append((name, exp.cast(final, self.column_types[name], dialect="spark")))
        child = node.child
        if arguments.computed:
            child = Project(child, (*((c, column(c)) for c in child.columns), *arguments.computed))
        counted = Counted(self.names(), tuple(parts.values()), tuple(finals))
        return replace(node, child=child, chosen=counted)

    def recursion(self, node: Recursion) -> Plan:
        """A recursion keeps its rows: those of a set as they are, those of a bag with their levels and counts."""
        self.column_types[COUNT] = "bigint"
        return replace(node, kept=(CountedLevels if node.every else DeleteRederive)(self.names()))

    # ---- sets (`trees.Columns`)

    def good_counters(self, node: Distinct) -> Plan:
        """ε keeps the counts of its rows; inside a recursion there is no one state of them."""
        recursive = any(isinstance(below, Reference) for below in node.walk())
        if not self.keeps_sets or recursive or not self.can_be_kept(node.columns):
            return node
        self.column_types[COUNT] = "bigint"
        return replace(node, kept=GoodCounters(self.sets()))

    def can_be_kept(self, names: Iterable[str]) -> bool:
        types = [self.column_types[name] for name in names]
        unfit = (has_no_order, equality_is_coarser, is_padded, is_not_stored)
        return not any(is_unfit(type_) for type_ in types for is_unfit in unfit)

    def compared_exactly(self, left: Scalar, right: Scalar) -> bool:
        return compared_exactly(self._type_of(left), self._type_of(right))

    def computed(self, value: Scalar) -> str:
        name = self.fresh()
        self.column_types[name] = self._type_of(value)
        return name

    def _type_of(self, value: Scalar) -> str:
        return self.column_types[value.name] if is_column(value) else self.types.of([value], self.column_types)[0]

    # ---- values

    def over_kept_values(self, node: Aggregate) -> Plan:
        """A total that is not made of parts, over the kept values of its arguments, which are computed below it.

        If these are constants, a constant is kept: how many rows there are still matters.
        """
        arguments = Arguments(self.types, self.column_types, self.fresh)
        outputs = tuple((name, rewrite(e, lambda part: _over_columns(part, arguments))) for name, e in node.outputs)
        read = sorted(used(*(e for _, e in outputs))) or [arguments.column_of(exp.true())]
        computed = dict(arguments.computed)
        kept = self.kept(Project(node.child, tuple((c, computed.get(c, column(c))) for c in read)))
        return node if kept is None else replace(node, child=kept, outputs=outputs, chosen=TOTAL_OVER_KEPT)

    def over_kept_rows(self, node: Limit | Window) -> Plan:
        """A node that reads all rows of its input at every change, over rows that are kept: here or further down."""
        if is_kept(node.child):
            return node
        kept = self.kept(node.child)
        return node if kept is None else pick(replace(node, child=kept), node.columns)

    def auxiliary(self, rows: Plan, order: tuple[str, ...]) -> Kept:
        """Rows of a base table in an auxiliary table, in an order."""
        kept = self.kept(rows)
        if kept is None:
            unordered = [c for c in rows.columns if has_no_order(self.column_types[c])]
            raise UnsupportedSQLError(
                f"maintain = 'self' is not possible: rows of {listed_tables(rows)} have to be kept, and of type "
                f"{self.column_types[unordered[0]]} equal values cannot be found again. Leave that column out of the "
                f"view, or use maintain = 'auto'."
            )
        return replace(kept, kept=Auxiliary(kept.kept.support, order))

    def kept(self, rows: Plan) -> Kept | None:
        """The rows in a support table, None where they cannot be distinguished there.

        Where SQL equates different values of a column, their texts are kept beside them, so that rows stay distinct.
        """
        types = {c: self.column_types[c] for c in rows.columns}
        if any(map(has_no_order, types.values())):
            return None
        bitwise = {c: type_ for c, type_ in types.items() if equality_is_coarser(type_)}
        if bitwise:
            texts = tuple((self.fresh(), exp.cast(column(c), "string", dialect="spark")) for c in bitwise)
            self.column_types.update({name: "string" for name, _ in texts})
            rows = Project(rows, (*((c, column(c)) for c in rows.columns), *texts))
        self.column_types[COUNT] = "bigint"
        return Kept(rows, KeptValues(self.names()), bitwise)


def _over_columns(part: Scalar, arguments: Arguments) -> Scalar | None:
    """An aggregate call over columns that hold its arguments, None for anything else."""

    def held(value: Scalar) -> Scalar:
        if isinstance(value, exp.Distinct):
            return exp.Distinct(expressions=[held(e) for e in value.expressions])
        return column(arguments.column_of(value)) if columns_of(value) else value.copy()

    if isinstance(part, exp.Filter):
        inner = _over_columns(part.this, arguments)
        return exp.Filter(this=inner or part.this.copy(), expression=exp.Where(this=held(part.expression.this)))
    if isinstance(part, exp.Anonymous) and is_aggregate(part):
        return exp.Anonymous(this=part.this, expressions=[held(argument) for argument in part.expressions])
    return None
