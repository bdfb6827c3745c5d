"""A plan that reads no base table: rows that a rule would read there are kept in auxiliary tables, or are in the view.

A rule reads states of its inputs where it is not linear. Above each base table whose state would be read stands a node
that has both states at hand:
- of a join along declared references the parts of Algorithm 3.1 (`Referring`), as small as keys and references make
  them; the table that refers to all others needs none if the view shows its rows (`Seen`), or if nothing reads them;
- of everything else the rows that pass the table's own conditions, with the columns that are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.delta import differentiate
from deferred.algebra.guards import is_whole, rows_of_table, scan_below, traced
from deferred.algebra.notation import Labels
from deferred.algebra.operators import ANTI, Aggregate, Distinct, Filter, Join, Kept, OuterJoin, Project, Scan
from deferred.algebra.operators.in_view import InView, Seen
from deferred.algebra.operators.project import pick
from deferred.algebra.operators.promised_join import Link, PromisedJoin
from deferred.algebra.operators.referring import Referred, Referring
from deferred.algebra.operators.scan import scans_of, tables_of
from deferred.algebra.operators.unmet import Unmet, UnmetKeys, Watched
from deferred.algebra.plan import Plan, transformed
from deferred.algebra.program import Program
from deferred.algebra.prune import needed_columns, parents_first, prune
from deferred.algebra.scalar import Fresh, Scalar, all_true, column, columns_of, conjunction, conjuncts, is_column
from deferred.algebra.selfmaintenance.graph import Edge, JoinGraph
from deferred.algebra.selfmaintenance.preaggregation import PreAggregation
from deferred.algebra.selfmaintenance.promises import Promises
from deferred.algebra.selfmaintenance.shown import Shown, facts, rows_under, scan_of
from deferred.algebra.strategy import Stateful, support_tables
from deferred.algebra.types import equality_is_coarser


def narrowed(plan: Plan) -> Plan:
    """The plan with the conditions on one input of a join below the join, and without the columns that only they read.

    >>> from sqlglot import parse_one
    >>> from deferred.algebra.notation import notation
    >>> from deferred.algebra.operators import Scan
    >>> r, s = Scan("R", ("A", "B"), ("c1", "c2")), Scan("S", ("B", "C"), ("c3", "c4"))
    >>> notation(narrowed(Join((r, s), parse_one("c2 = c3 AND c4 = 5"))))
    'R ⋈[R.B = S.B] σ[C = 5](S)'
    """
    return _without_unread(transformed(plan, _with_local_conditions_below))


def _with_local_conditions_below(node: Plan) -> Plan:
    if not isinstance(node, Join):
        return node
    rest, inputs = conjuncts(node.condition), list(node.inputs)
    for i, plan in enumerate(inputs):
        own = [part for part in rest if columns_of(part) and columns_of(part) <= set(plan.columns)]
        rest = [part for part in rest if part not in own]
        condition = conjunction(own)
        inputs[i] = plan if condition is None else Filter(plan, condition)
    return replace(node, inputs=tuple(inputs), condition=conjunction(rest))


def _without_unread(plan: Plan) -> Plan:
    """The plan in which an input of a join has only the columns that are read above it."""
    plan = prune(plan)
    needed = needed_columns(plan)
    done: dict[Plan, Plan] = {}

    def visit(node: Plan) -> Plan:
        if node not in done:
            children = [visit(child) for child in node.children]
            if isinstance(node, Join):
                children = [narrow(old, new) for old, new in zip(node.inputs, children, strict=True)]
            done[node] = node.with_children(children)
        return done[node]

    def narrow(old: Plan, new: Plan) -> Plan:
        columns = [c for c in old.columns if c in needed[old]]
        return pick(new, columns) if columns and scan_of(old) is not None else new

    return visit(plan)


class AuxiliaryTables(Protocol):
    """Gives a plan its auxiliary tables."""

    column_types: dict[str, str]
    fresh: Fresh
    names: Fresh

    def auxiliary(self, rows: Plan, order: tuple[str, ...]) -> Kept:
        """Rows of a base table in an auxiliary table, in an order."""
        ...


def self_maintained(plan: Plan, promises: Promises, tables: AuxiliaryTables) -> Plan:
    """The plan with auxiliary tables, so that no change makes it read a base table."""
    return _Rewriting(plan, promises, tables).plan()


def base_reads(plan: Plan, types: Mapping[str, str]) -> set[str]:
    """The base tables of which a change of one table, or of all, makes the plan read more than the log."""
    tables = tables_of(plan)
    found: set[str] = set()
    for changed in [{table} for table in tables] + [tables]:
        found |= tables_read(differentiate(plan, changed, types))
    return found


def tables_read(program: Program) -> set[str]:
    """The base tables that a program reads at s_c."""
    return {scan.table for plan in program.plans for scan in scans_of(plan)}


@dataclass
class _Rewriting:
    """The rewriting of one plan."""

    root: Plan
    promises: Promises
    tables: AuxiliaryTables
    done: dict[Plan, Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.types = self.tables.column_types
        self.read = _read_states(self.root)
        self.shown = Shown.by(self.root, self.types)
        self.looked_up = {c for node in self.root.walk() for c in node.looked_up_by}

    def plan(self) -> Plan:
        return self.visit(self.root)

    def visit(self, node: Plan) -> Plan:
        if node not in self.done:
            self.done[node] = self._visit(node)
        return self.done[node]

    def _visit(self, node: Plan) -> Plan:
        if isinstance(node, Join):
            return self.join(node)
        if self.read.get(node) and scan_of(node) is not None:
            return self.tables.auxiliary(node, self.order(node))
        node = self.pre_aggregated(node)
        return node.with_children([self.visit(child) for child in node.children])

    def pre_aggregated(self, node: Plan) -> Plan:
        """An aggregate over a join in which the root is aggregated first, if its rows would have to be kept."""
        found = PreAggregation.of(node)
        graph = None if found is None else self.graph(found.join)
        if found is None or graph is None or graph.root is None or self.read.get(found.join):
            return node
        if scan_of(found.join.inputs[graph.root]) is None or not self.is_read(found.join, graph, graph.root):
            return node
        return found.over(graph.root, self.types, self.tables.fresh, self.tables.names) or node

    def is_read(self, node: Join, graph: JoinGraph, i: int) -> bool:
        """Whether rows of an input are read, beside its change."""
        order = graph.referring_first()
        return bool(self.read.get(node)) or _over(node, graph, dict(enumerate(node.inputs))).is_read(order.index(i))

    def join(self, node: Join) -> Plan:
        """A join over auxiliary tables; along references, with the rule and the smaller tables that they allow."""
        graph = self.graph(node)
        if not graph.links:
            return pick(node.with_children([self.visit(child) for child in node.inputs]), node.columns)
        parts: dict[int, Plan] = {}
        for i in reversed(graph.referring_first()):
            referred = tuple(Referred(parts[e.end], e.on) for e in graph.links if e.start == i)
            plan, rows = node.inputs[i], rows_under(node.inputs[i])
            if scan_of(rows) is None:
                parts[i] = self.visit(plan)
                continue
            reduced = Referring(rows, referred) if referred else rows
            if rows is not plan:
                parts[i] = plan.with_children([reduced])
            else:
                parts[i] = self.stateful(reduced, node, graph, i) if self.is_read(node, graph, i) else reduced
        joined = _over(node, graph, parts)
        unmet = tuple(self.unmet(joined, link) for link in joined.links if not is_whole(joined.inputs[link.referred]))
        return pick(Watched(joined, unmet) if unmet else joined, node.columns)

    def unmet(self, join: PromisedJoin, link: Link) -> Unmet:
        """What is remembered of references to a table of which not all rows are at hand."""
        mine, theirs = (rows_of_table(join.inputs[i]) for i in (link.referring, link.referred))
        scan, types = scan_below(theirs), self.tables.column_types
        names = dict(zip(scan.ids, scan.names, strict=True))
        keys, fks = {}, {}
        for fk, key in link.on:
            keys[self.tables.fresh()] = key
            fks[self.tables.fresh()] = fk
        types.update({mine_: types[fk] for mine_, fk in fks.items()} | {id_: types[key] for id_, key in keys.items()})
        types[COUNT] = "bigint"
        known = all_true(exp.Not(this=exp.Is(this=column(fk), expression=exp.Null())) for fk in fks.values())
        rows = Scan(scan.table, tuple(names[traced(theirs, key)] for key in keys.values()), tuple(keys))
        same = all_true(
            exp.EQ(this=column(fk), expression=column(id_)) for fk, id_ in zip(fks.values(), keys, strict=True)
        )
        missing = OuterJoin(Filter(mine, known), rows, ANTI, same)
        outputs = tuple((mine_, column(fk)) for mine_, fk in fks.items())
        return Unmet(Distinct(Project(missing, outputs)), UnmetKeys(self.tables.names()), link)

    def stateful(self, plan: Plan, node: Join, graph: JoinGraph, i: int) -> Plan:
        """The rows of an input with both states at hand: in the view, if it shows them, or in a table of their own."""
        if node is self.shown.join and i == graph.root and not graph.needs_auxiliary(i):
            shown = self.shown.columns(plan.columns)
            if shown is not None:
                bitwise = {c: self.types[c] for c in plan.columns if equality_is_coarser(self.types[c])}
                return Seen(plan, InView(shown, self.root.columns), bitwise)
        key = [theirs for edge in graph.links if edge.end == i for _, theirs in edge.on]
        return self.tables.auxiliary(plan, self.order(plan, key))

    def order(self, plan: Plan, first: Iterable[str] = ()) -> tuple[str, ...]:
        """The columns of a plan by which a rule looks its rows up, those first that others refer to."""
        return tuple(dict.fromkeys([*first, *(c for c in plan.columns if c in self.looked_up)]))

    # ---- the join graph

    def graph(self, node: Join) -> JoinGraph:
        """G(V) of a join, whose vertices are its inputs: a table that is joined with itself is several (B.3)."""
        known = [facts(plan, self.promises, self.types) for plan in node.inputs]
        equal = [_plain_equality(part) for part in conjuncts(node.condition)]
        pairs = {pair for found in equal if found is not None for pair in (found, found[::-1])}
        edges = []
        for j, theirs in enumerate(known):
            for i, mine in enumerate(known):
                on = theirs.joined_by(mine, pairs) if i != j else None
                if on is None:
                    continue
                columns = [mine.names.get(a) for a, _ in on]
                refers = (
                    mine.table is not None
                    and theirs.table is not None
                    and None not in columns
                    and self.promises.refers(mine.table, [c for c in columns if c is not None], theirs.table)
                )
                edges.append(Edge(i, j, on, refers))
        preserved = frozenset(
            i
            for i, each in enumerate(known)
            if each.key and node is self.shown.join and self.shown.columns(each.key) is not None
        )
        return JoinGraph(len(known), tuple(edges), preserved)


def _over(node: Join, graph: JoinGraph, parts: Mapping[int, Plan]) -> PromisedJoin:
    """A join along references over other inputs, what refers before what it refers to."""
    order = graph.referring_first()
    place = {old: new for new, old in enumerate(order)}
    links = tuple(Link(place[e.start], place[e.end], e.on) for e in graph.links)
    return PromisedJoin(tuple(parts[i] for i in order), node.condition, links)


def _plain_equality(part: Scalar) -> tuple[str, str] | None:
    if isinstance(part, exp.EQ) and is_column(part.this) and is_column(part.expression):
        return part.this.name, part.expression.name
    return None


def _read_states(plan: Plan) -> dict[Plan, bool]:
    """Whether rows of each node are read, beside its change."""
    read = dict.fromkeys(plan.walk(), False)
    for node in parents_first(plan):
        below = node.strategy.reads_inputs(node, read[node])
        for child in node.children:
            read[child] = read[child] or below
    return read


def described(plan: Plan) -> list[str]:
    """For each base table of a plan that reads none: where its rows are instead, and why."""
    labels = Labels(plan)
    lines: list[str] = []
    for node in plan.walk():
        strategy = node.strategy
        where = strategy.base_rows_in(node, labels) if isinstance(strategy, Stateful) else None
        if where is not None:
            lines.append(f"{scan_below(node).table}: {where}")
        if isinstance(node, PromisedJoin):
            lines += _described_join(node, labels)
    return lines


def _described_join(node: PromisedJoin, labels: Labels) -> Iterator[str]:
    """The tables of a join along references of which no rows are kept, or only aggregated ones."""
    for part in (part for part in node.inputs if isinstance(part, Aggregate)):
        for name in list(support_tables(part))[:1]:
            yield f"{scan_below(part).table}: kept in {name}, aggregated to {labels.columns(part.keys)}"
    for plan in (plan for plan in node.inputs if not isinstance(plan.strategy, Stateful)):
        yield f"{scan_below(plan).table}: not kept; no change of another table can meet its rows"
    for scan in node.watched:
        yield f"{scan.table}: a new row meets only new rows, by the reference to it"
