"""ω: window functions, computed within a partition, so maintained at the touched partitions.

Without PARTITION BY there is one partition. Its rows are kept below the node (kept.py), or are groups that are kept
anyway, so that a change computes it again without reading a base table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.keeping import is_kept, over_everything
from deferred.algebra.nodes import Barrier, Unary
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.order import completed, sort_key
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import Scalar, column
from deferred.algebra.strategy import TOUCHED_PARTITIONS, Strategy, SupportTables

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.paper.figure2 import Figure2, Pair
    from deferred.algebra.paper.interpret import Row
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting

PEERS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions that give rows of equal order the same value, and so need no tie broken."""

NUMBERING = frozenset({"row_number", "ntile", "lag", "lead", "first_value", "first"})
"""Functions that depend on the order of rows that ORDER BY leaves equal, whatever their frame."""


@dataclass(frozen=True, eq=False)
class Window(Barrier, Unary):
    """ω: every row of E with window functions added, all over one set of partition columns."""

    partition: tuple[str, ...]
    functions: tuple[tuple[str, exp.Window], ...]

    called = "a window"
    row_by_row = False
    in_recursion = False
    one_row = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *(name for name, _ in self.functions))

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return tuple(function for _, function in self.functions)

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return None

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return self.partition

    def origin(self, name: str) -> Origin | None:
        return None

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        functions = [function for name, function in self.functions if name in needed]
        return ((needed & frozenset(self.child.columns)) | frozenset(self.partition) | used(*functions),)

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        (child,) = children
        functions = tuple(f for f in self.functions if f[0] in needed)
        return replace(self, child=child, functions=functions) if functions else child

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(ω(E)) = ω(New(E|K)) − ω(Old(E|K)), K the partitions that Δ(E) touches."""
        change = d.delta(self.child)
        if change is None:
            return None
        change = d.shared(change)
        keys = Keys.same(change, self.partition) if self.partition else None
        new, old = d.states(self.child, change, keys)
        return d.difference(replace(self, child=new), replace(self, child=old), self.columns)

    def restricted(self, keys: Keys) -> Plan:
        """ω(E) ⋉ K = ω(E ⋉ K) on the partition columns: whole partitions stay or go."""
        below = keys.within(self.partition)
        plan = self if below is None else replace(self, child=self.child.restricted(below))
        return plan if below is not None and below.completes(keys) else Restrict(plan, keys)

    @property
    def strategy(self) -> Strategy:
        return TOUCHED_PARTITIONS if self.partition else over_everything(self.child)

    def supported(self, tables: SupportTables) -> Plan:
        return self if self.partition else tables.over_kept_rows(self)

    def reads(self, labels: Labels) -> str:
        if not self.partition:
            return "all kept rows, and no table" if is_kept(self.child) else f"its whole input: {listed_tables(self)}"
        partitions = labels.columns(self.partition)
        return f"the changed rows, and in {listed_tables(self)} all rows of their partitions ({partitions})"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        """The values of the free columns are partition columns too."""
        child, values = u.plan(self.child)
        functions = []
        for name, function in self.functions:
            extended = u.put(function, values)
            assert isinstance(extended, exp.Window)
            extended.set("partition_by", [*(extended.args.get("partition_by") or []), *map(column, values.values())])
            functions.append((name, extended))
        return Window(child, (*self.partition, *values.values()), tuple(functions)), values

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """A row changes the values of all rows of its partition."""
        facts = c.facts(self.child)
        return [[c.apart((*demand, *facts), self.partition) for demand in asked]]

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    def figure2(self, f: Figure2) -> Pair:
        return f.grouped(self, self.partition)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {out: labels.computed(out, function) for out, function in self.functions}

    def notation(self, labels: Labels) -> str:
        return f"ω[{labels.outputs(self.functions)}]({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        columns = self.child.columns
        positions = [columns.index(c) for c in self.partition]
        partitions: dict[Row, list[Row]] = {}
        for row in e(self.child).elements():
            partitions.setdefault(tuple(row[i] for i in positions), []).append(row)
        result: Bag = Counter()
        for rows in partitions.values():
            values = [_values(e, function, rows, columns) for _, function in self.with_ties_broken]
            result.update(row + added for row, added in zip(rows, zip(*values, strict=True), strict=True))
        return result

    def sql(self, w: Writer) -> exp.Query:
        functions = [bags.alias(w.scalar(function), name) for name, function in self.with_ties_broken]
        return bags.select([*map(bags.column, self.child.columns), *functions], w.below(self.child, "q"))

    @property
    def with_ties_broken(self) -> tuple[tuple[str, exp.Window], ...]:
        """The functions with every tie broken by the rows' own values, so that both states give the same values."""
        return tuple((name, _with_ties_broken(function, self.child.columns)) for name, function in self.functions)


def _with_ties_broken(window: exp.Window, columns: Sequence[str]) -> exp.Window:
    order = window.args.get("order")
    name = _name(window)
    by_rows = _frame_kind(window) == "ROWS"
    if order is None or name in PEERS or not (name in NUMBERING or by_rows):
        return window
    result = window.copy()
    result.args["order"].set("expressions", list(completed(result.args["order"].expressions, columns)))
    return result


def _function(window: exp.Window) -> exp.Expr:
    function: exp.Expr = window.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls)):
        function = function.this
    return function


def _name(window: exp.Window) -> str:
    function = _function(window)
    return str(function.this).lower() if isinstance(function, exp.Anonymous) else function.key


def _frame_kind(window: exp.Window) -> str:
    spec = window.args.get("spec")
    return "" if spec is None else str(spec.args.get("kind", "")).upper()


# ---- the reference: what a window function gives each row of one partition


def _values(e: Evaluation, window: exp.Window, rows: Sequence[Row], columns: Sequence[str]) -> list[Any]:
    """The value of a window function at each row, in the order in which the rows are given."""
    order = window.args["order"].expressions if window.args.get("order") else []
    key = sort_key(e, order, columns)
    places = sorted(range(len(rows)), key=lambda i: key(rows[i]))
    ordered = [rows[i] for i in places]
    keys = [key(row) for row in ordered]
    found: list[Any] = [None] * len(rows)
    for position, place in enumerate(places):
        found[place] = _at(e, window, ordered, keys, position, columns)
    return found


def _at(
    e: Evaluation, window: exp.Window, rows: Sequence[Row], keys: Sequence[Any], position: int, columns: Sequence[str]
) -> Any:
    name, function = _name(window), _function(window)
    first = keys.index(keys[position])  # the first peer: keys compare equal where ORDER BY leaves rows equal
    if name == "row_number":
        return position + 1
    if name == "rank":
        return first + 1
    if name == "dense_rank":
        return sum(keys[i] != keys[i - 1] for i in range(1, first + 1)) + 1
    if name in ("lag", "lead"):
        argument, *step = function.expressions
        distance = int(step[0].name) if step else 1
        other = position - distance if name == "lag" else position + distance
        return e.value(argument, columns)(rows[other]) if 0 <= other < len(rows) else None
    frame = rows[slice(*_frame(window, keys, position))]
    if name in ("first_value", "first"):
        return e.value(function.expressions[0], columns)(frame[0]) if frame else None
    return e.aggregated(function, columns, Counter(frame))


def _frame(window: exp.Window, keys: Sequence[Any], position: int) -> tuple[int, int]:
    """The rows of a frame, as the bounds of a slice."""
    if not window.args.get("order"):
        return 0, len(keys)
    if _frame_kind(window) != "ROWS":
        return 0, len(keys) - list(reversed(keys)).index(keys[position])
    spec = window.args["spec"]
    start = _bound(spec.args.get("start"), spec.args.get("start_side"), position, 0)
    end = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), position, len(keys) - 1)
    return max(start, 0), max(end + 1, 0)


def _bound(edge: Any, side: str | None, position: int, unbounded: int) -> int:
    if edge == "UNBOUNDED":
        return unbounded
    if edge == "CURRENT ROW":
        return position
    distance = int(edge.name if isinstance(edge, exp.Expr) else edge)
    return position - distance if side == "PRECEDING" else position + distance
