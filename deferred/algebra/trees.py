"""Joins as trees of sets: each table is joined with the key values of those below it, and never with their rows.

ε(Π_A(R₁ ⋈ … ⋈ Rₙ)) asks only which rows there are, so below the ε no copies matter. Over a tree of the tables
(`hypergraph`), with the root r and for each other node m the columns Zₘ that anything above needs of it,

    Sₘ = ε(Π_Zₘ(Rₘ ⋈ S_c1 ⋈ … ⋈ S_ck)),  c1 … ck the children of m,
    ε(Π_A(R₁ ⋈ … ⋈ Rₙ)) = ε(Π_A(R_r ⋈ S_c1 ⋈ … ⋈ S_ck)).

That is ε(Π(E ⋈ F)) = ε(Π(E ⋈ ε(Π_Z(F)))), where Z has all columns of F that Π and ⋈ read; it holds for any tree. In
one of Shmueli and Itai (1984), whose root has the columns A, Z is the join key alone: Sₘ are the values for which there
is a good row of Rₘ, and a row of R_r in the join is a good row. Each ε keeps its counts (`operators/good_counters`), so
a change goes up from its table only as long as a value becomes good or bad; bad rows end where they dangle. A template
is a node of several tables, Rₘ = Rᵢ ⋈ Rⱼ.

Whether a row has the paper's mark for a child is looked up in the child's counts when the row changes or a value of its
key does. The number of its marks is not stored: that would be a copy of every table.

EXISTS and IN need no ε around them: E ⋉ F = E ⋈ ε(Π_Z(F)), where the equalities of ⋉ leave a row of E one partner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from sqlglot import exp

from deferred.algebra.blocks import Block, distinct_block_of
from deferred.algebra.hypergraph import JoinTree, join_tree
from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.join import Join, product_of
from deferred.algebra.operators.outer_join import OuterJoin
from deferred.algebra.operators.project import Project, pick
from deferred.algebra.operators.recursion import Recursion
from deferred.algebra.operators.scan import listed_tables
from deferred.algebra.plan import Plan, used
from deferred.algebra.scalar import (
    Scalar,
    all_true,
    column,
    columns_of,
    conjunction,
    conjuncts,
    equated,
    equated_columns,
    is_column,
    substitute,
)


class Columns(Protocol):
    """What must be known about columns, and new ones."""

    def can_be_kept(self, names: Iterable[str]) -> bool:
        """Whether rows of these columns can be looked up exactly in a support table."""
        ...

    def compared_exactly(self, left: Scalar, right: Scalar) -> bool:
        """Whether two values are compared without a conversion, so that equality is transitive."""
        ...

    def computed(self, value: Scalar) -> str:
        """A new column for a value."""
        ...


def as_trees(plan: Plan, columns: Columns) -> tuple[Plan, list[str]]:
    """The plan in which ε over joins, and semi and anti joins, read sets of key values; and what was found, in words.

    What is in a recursion stays: its rows are computed in rounds.
    """
    trees = _Trees(columns)
    return trees.visit(plan), list(dict.fromkeys(trees.notes))


class _Trees:
    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.notes: list[str] = []
        self._done: dict[Plan, Plan] = {}

    def visit(self, node: Plan) -> Plan:
        if node not in self._done:
            self._done[node] = self._visited(node)
        return self._done[node]

    def _visited(self, node: Plan) -> Plan:
        if isinstance(node, Recursion):
            return node
        if isinstance(node, Distinct):
            block = distinct_block_of(node.child)
            if len(block.inputs) > 1:
                found = self._tree(node, block)
                if found is not None:
                    return found
        if isinstance(node, OuterJoin) and node.kind.selects:
            return self._semi(node)
        return node.rebuilt([self.visit(child) for child in node.children])

    # ---- ε over joins

    def _tree(self, node: Distinct, block: Block) -> Plan | None:
        join = _TreeJoin.of(block, [column(c) for c in node.columns], self.columns)
        sets = [*join.kept_columns, node.columns]
        if not all(map(self.columns.can_be_kept, sets)):
            self.notes.append(
                f"No tree is kept for the join of {listed_tables(node)}: a key or a result has a type in which "
                "different values are equal, or which SQL does not compare."
            )
            return None
        self.notes.append(join.description)
        inputs = [self.visit(plan) for plan in block.inputs]
        outputs = tuple((c, block.outputs[c]) for c in node.columns)
        return Distinct(Project(join.plan(inputs), outputs))

    # ---- EXISTS, IN and their negations

    def _semi(self, node: OuterJoin) -> Plan:
        """E ⋉ F = E ⋈ ε(Π_Z(F)) where each row of E has one partner at most; else ⋉ and ▷ with ε(Π_Z(F)) for F.

        It has one partner where every column of Z is equal to a value of E, compared exactly.
        """
        left, right = self.visit(node.left), self.visit(node.right)
        theirs = set(right.columns)
        parts, extra, keys = [], [], set[str]()
        for part in conjuncts(node.condition):
            if columns_of(part) and columns_of(part) <= theirs:
                right = Filter(right, part)
                continue
            for mine, other in equated(part):
                reads = columns_of(other)
                exactly = reads and reads <= theirs and not columns_of(mine) & theirs and columns_of(mine)
                if exactly and self.columns.compared_exactly(mine, other):
                    if not is_column(other):
                        name = self.columns.computed(other)
                        extra.append((name, other))
                        other = column(name)
                    part = type(part)(this=mine.copy(), expression=other.copy())
                    keys.add(other.name)
                    break
            parts.append(part)
        below = right if not extra else Project(right, (*((c, column(c)) for c in right.columns), *extra))
        needed = [c for c in below.columns if c in used(*parts)]
        if not self.columns.can_be_kept(needed):
            return node.with_children((left, self.visit(node.right)))
        values = Distinct(_picked(below, needed, self.columns))
        if node.kind.matched and keys >= set(needed):
            return pick(product_of(left, values, parts), left.columns)
        return replace(node, left=left, right=values, condition=all_true(parts))


@dataclass(frozen=True)
class _TreeJoin:
    """A join as a rooted tree.

    `own` are the conditions on one input, `added` the values that are computed of one, by which it is joined. `classes`
    are columns that are equal to each other; `others` the other conditions on several inputs.
    """

    columns: Columns
    inputs: Sequence[Plan]
    own: Mapping[int, Sequence[Scalar]]
    added: Mapping[int, Sequence[tuple[str, Scalar]]]
    classes: Sequence[frozenset[str]]
    others: Sequence[Scalar]
    constant: Sequence[Scalar]
    wanted: frozenset[str]

    @staticmethod
    def of(block: Block, outputs: Sequence[Scalar], columns: Columns) -> _TreeJoin:
        owners = {c: i for i, plan in enumerate(block.inputs) for c in plan.columns}
        own: dict[int, list[Scalar]] = {i: [] for i in range(len(block.inputs))}
        added: dict[int, list[tuple[str, Scalar]]] = {i: [] for i in own}
        classes: list[frozenset[str]] = []
        others: list[Scalar] = []
        constant: list[Scalar] = []
        for part in block.conditions:
            read = {owners[c] for c in columns_of(part)}
            if len(read) < 2:
                (own[read.pop()] if read else constant).append(part)
                continue
            part = _on_columns(part, owners, added, columns)
            pair = equated_columns(part)
            if pair and isinstance(part, exp.EQ) and columns.compared_exactly(part.this, part.expression):
                met = [c for c in classes if c & set(pair)]
                classes = [c for c in classes if c not in met] + [frozenset(pair).union(*met)]
            else:
                others.append(part)
        wanted = used(*(substitute(e, block.outputs) for e in outputs))
        return _TreeJoin(columns, block.inputs, own, added, classes, others, constant, wanted)

    # ---- the tree

    @cached_property
    def owner(self) -> dict[str, int]:
        found = {c: i for i, plan in enumerate(self.inputs) for c in plan.columns}
        return found | {name: i for i, added in self.added.items() for name, _ in added}

    @cached_property
    def tree(self) -> JoinTree:
        """Tables share what is equal between them; a condition of another kind is as if they shared a column."""
        groups = [*self.classes, *(columns_of(part) for part in self.others)]
        tables = [frozenset(self.owner[c] for c in names) for names in groups]
        return join_tree([{n for n, met in enumerate(tables) if i in met} for i in range(len(self.inputs))])

    @cached_property
    def root(self) -> int:
        """The node that has most of the columns that are asked for."""

        def has(node: int) -> int:
            return sum(self.owner[c] in self.tree.nodes[node] for c in self.wanted)

        return max(self.tree.nodes, key=lambda node: (has(node), -node))

    @cached_property
    def description(self) -> str:
        names = [listed_tables(plan) for plan in self.inputs]

        def written(node: int, parent: int | None) -> str:
            template = " ⋈ ".join(names[i] for i in self.tree.nodes[node])
            shown = f"[{template}]" if len(self.tree.nodes[node]) > 1 else template
            below = ", ".join(written(child, node) for child in self.tree.children(node, parent))
            return f"{shown}({below})" if below else shown

        whole = written(self.root, None)
        if self.tree.templates:
            return f"The join is cyclic, and a tree with templates, in brackets: {whole}."
        return f"The join is a tree: {whole}."

    # ---- the plan

    @property
    def kept_columns(self) -> list[tuple[str, ...]]:
        """The columns of each set of values."""
        return [self._needed(c, node) for node, c in self._edges(self.root, None)]

    def plan(self, inputs: Sequence[Plan]) -> Plan:
        """The rows of the join that differ in the columns that are asked for, over the given plans of the inputs."""
        plan = self._node(self.root, None, [self._input(i, plan) for i, plan in enumerate(inputs)])
        return plan if not self.constant else Filter(plan, all_true(self.constant))

    def _edges(self, node: int, parent: int | None) -> list[tuple[int, int]]:
        children = self.tree.children(node, parent)
        return [edge for child in children for edge in ((node, child), *self._edges(child, node))]

    def _input(self, i: int, plan: Plan) -> Plan:
        if self.own[i]:
            plan = Filter(plan, all_true(self.own[i]))
        added = self.added[i]
        return plan if not added else Project(plan, (*((c, column(c)) for c in plan.columns), *added))

    def _node(self, node: int, parent: int | None, inputs: Sequence[Plan]) -> Plan:
        """Rₘ ⋈ S_c1 ⋈ … ⋈ S_ck."""
        children = self.tree.children(node, parent)
        items = [inputs[i] for i in self.tree.nodes[node]]
        for child in children:
            rows = self._node(child, node, inputs)
            items.append(Distinct(_picked(rows, self._needed(child, node), self.columns)))
        condition = conjunction(self._conditions(node, parent))
        if len(items) > 1:
            return Join(tuple(items), condition)
        return items[0] if condition is None else Filter(items[0], condition)

    def _conditions(self, node: int, parent: int | None) -> list[Scalar]:
        """What is decided at a node: it has all columns of the condition, and none of its children has."""
        children = self.tree.children(node, parent)
        here, below = self.tree.below(node, parent), [self.tree.below(c, node) for c in children]
        parts: list[Scalar] = []
        for equal in self.classes:
            met = sorted(c for c in equal if self.owner[c] in self.tree.nodes[node])
            met += [name for c in children if (name := self._representative(equal, c, node)) is not None]
            parts += [exp.EQ(this=column(met[0]), expression=column(name)) for name in met[1:]]
        for part in self.others:
            tables = {self.owner[c] for c in columns_of(part)}
            if tables <= here and not any(tables <= inside for inside in below):
                parts.append(part)
        return parts

    def _needed(self, node: int, parent: int) -> tuple[str, ...]:
        """Z: what is asked for of the tables of a subtree, or decided above it."""
        inside = self.tree.below(node, parent)
        needed = set(self._asked(inside))
        for equal in self.classes:
            name = self._representative(equal, node, parent)
            needed |= {name} if name is not None else set()
        return tuple(sorted(needed, key=lambda c: (self.owner[c], c)))

    def _asked(self, inside: frozenset[int]) -> frozenset[str]:
        above = [part for part in self.others if not {self.owner[c] for c in columns_of(part)} <= inside]
        return frozenset(c for c in self.wanted | used(*above) if self.owner[c] in inside)

    def _representative(self, equal: frozenset[str], node: int, parent: int) -> str | None:
        """The column that stands above a subtree for all that are equal in it; None where there are no others above."""
        inside = self.tree.below(node, parent)
        within = sorted(c for c in equal if self.owner[c] in inside)
        if not within or len(within) == len(equal):
            return None
        asked = [c for c in within if c in self._asked(inside)]
        own = [c for c in within if self.owner[c] in self.tree.nodes[node]]
        if asked or own:
            return (asked or own)[0]
        below = (self._representative(equal, child, node) for child in self.tree.children(node, parent))
        return next(name for name in below if name is not None)


def _on_columns(
    part: Scalar, owners: dict[str, int], added: Mapping[int, list[tuple[str, Scalar]]], columns: Columns
) -> Scalar:
    """An equality of values of two inputs, each value as a column of its input; anything else as it is."""
    if not isinstance(part, exp.EQ):
        return part
    sides = []
    for side in (part.this, part.expression):
        read = {owners[c] for c in columns_of(side)}
        if len(read) != 1:
            return part
        sides.append((side, read.pop()))
    if not columns.compared_exactly(part.this, part.expression):
        return part
    names = []
    for side, i in sides:
        if is_column(side):
            names.append(side.name)
            continue
        known = next((name for name, value in added[i] if value == side), None)
        if known is None:
            known = columns.computed(side)
            added[i].append((known, side))
            owners[known] = i
        names.append(known)
    return exp.EQ(this=column(names[0]), expression=column(names[1]))


def _picked(plan: Plan, names: Sequence[str], columns: Columns) -> Plan:
    """Π on the columns; a constant where nothing is needed but that there is a row."""
    if names:
        return pick(plan, names)
    there = exp.true()
    return Project(plan, ((columns.computed(there), there),))
