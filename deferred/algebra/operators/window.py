"""ω: window functions, computed within a partition, so maintained at the touched partitions.

Without PARTITION BY there is one partition. Its rows are kept below the node (kept.py), or are groups that are kept
anyway, so that a change computes it again without reading a base table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.nodes import Barrier, Unary
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.order import completed, sort_key
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer, used
from deferred.algebra.scalar import Scalar, column
from deferred.algebra.strategy import TOUCHED_PARTITIONS, Strategy, SupportTables
from deferred.algebra.support_tables import is_kept, over_everything
from deferred.algebra.window_functions import Place, Ties, call_of, filter_of, function_of, ignores_nulls

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.paper.interpret import Row
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.unnest import Bindings, Unnesting


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
    function = function_of(window)
    ties = Ties.SEEN_IN_ROWS if function is None else function.ties
    seen = ties is Ties.SEEN or (ties is Ties.SEEN_IN_ROWS and _counts_rows(window))
    if not seen or (function is None and window.args.get("order") is None and _has_all_rows(window)):
        return window
    result = window.copy()
    order = result.args.get("order") or exp.Order()
    order.set("expressions", list(completed(order.expressions, columns)))
    result.set("order", order)
    return result


def _counts_rows(window: exp.Window) -> bool:
    """Whether the frame is one of ROWS, not of RANGE."""
    spec = window.args.get("spec")
    return spec is not None and str(spec.args.get("kind", "")).upper() == "ROWS"


def _has_all_rows(window: exp.Window) -> bool:
    """Whether the frame is the whole partition; an aggregate to which the order matters has an ORDER BY even so."""
    spec = window.args["spec"]
    return spec.args.get("start") == "UNBOUNDED" and spec.args.get("end") == "UNBOUNDED"


# ---- the reference: what a window function gives each row of one partition


def _values(e: Evaluation, window: exp.Window, rows: Sequence[Row], columns: Sequence[str]) -> list[Any]:
    """The value of a window function at each row, in the order in which the rows are given."""
    partition = _Partition(e, window, rows, columns)
    function, call = function_of(window), call_of(window)
    value: Callable[[Place], Any]
    if function is None:
        value = partial(_aggregated, e, window, partition.rows, columns)
    else:
        assert filter_of(window) is None, "only aggregates have a FILTER"
        value = function.reference
        partition.arguments = [list(map(e.value(a, columns), partition.rows)) for a in call.expressions]
    found: list[Any] = [None] * len(rows)
    for row, given in enumerate(partition.given):
        found[given] = value(partition.place(row))
    return found


def _aggregated(e: Evaluation, window: exp.Window, rows: Sequence[Row], columns: Sequence[str], place: Place) -> Any:
    frame: Bag = Counter(rows[i] for i in place.frame)
    where = filter_of(window)
    if where is not None:
        frame = e.selected(frame, where.this, columns)
    return e.aggregated(call_of(window), columns, frame)


class _Partition:
    """The rows of a partition in the order of a window; `given` has their numbers in the order of `rows`."""

    def __init__(self, e: Evaluation, window: exp.Window, rows: Sequence[Row], columns: Sequence[str]) -> None:
        self._window = window
        self._order = window.args["order"].expressions if window.args.get("order") else []
        key = sort_key(e, self._order, columns)
        self.given = sorted(range(len(rows)), key=lambda i: key(rows[i]))
        self.rows = [rows[i] for i in self.given]
        self.arguments: list[list[Any]] = []
        keys = list(map(key, self.rows))  # equal where ORDER BY leaves rows equal
        starts = [i for i in range(len(keys)) if not i or keys[i] != keys[i - 1]]
        self._groups = [range(*bounds) for bounds in pairwise([*starts, len(keys)])]
        self._ordered_by = list(map(e.value(self._order[0].this, columns), self.rows)) if self._order else []

    def place(self, row: int) -> Place:
        groups, peers = next((i, group) for i, group in enumerate(self._groups) if row in group)
        frame = self._frame(row, peers)
        return Place(row, peers, groups, len(self.rows), frame, self.arguments, ignores_nulls(self._window))

    def _frame(self, row: int, peers: range) -> range:
        """RANGE from the first row to the last peer where nothing is said; without an order all rows are peers."""
        spec = self._window.args.get("spec")
        if spec is None:
            return range(peers.stop)
        counts_rows = _counts_rows(self._window)
        current = range(row, row + 1) if counts_rows else peers

        def edge(name: str, from_: int, unbounded: int, at_current: int) -> int:
            bound = spec.args.get(name) or "CURRENT ROW"
            if bound in ("UNBOUNDED", "CURRENT ROW"):
                return unbounded if bound == "UNBOUNDED" else at_current
            distance = int(bound.name if isinstance(bound, exp.Expr) else bound)
            distance = -distance if spec.args.get(f"{name}_side") == "PRECEDING" else distance
            return row + from_ + distance if counts_rows else self._within(row, distance)[from_]

        start, end = edge("start", 0, 0, current.start), edge("end", 1, len(self.rows), current.stop)
        return range(max(start, 0), max(min(end, len(self.rows)), 0))

    def _within(self, row: int, distance: int) -> tuple[int, int]:
        """The first row whose value in the order is at least so far from that of a row, and the end of those below."""
        (key,) = self._order
        nulls = -math.inf if key.args.get("nulls_first") else math.inf
        here = self._ordered_by[row]

        def far(value: Any) -> Any:
            if value is None or here is None:
                return 0 if value is here else nulls if value is None else -nulls
            return here - value if key.args.get("desc") else value - here

        return (
            sum(far(value) < distance for value in self._ordered_by),
            sum(far(value) <= distance for value in self._ordered_by),
        )
