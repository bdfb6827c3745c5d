"""The plan: what every node of a query must define, and the sets of keys by which rules restrict what they read.

The nodes are in `operators`, one file per operator. A node's `columns` are ids, unique within a query, so that no
operator ever has to rename columns. The change, the new and the old state of a node have the node's own columns; a
*signed* plan has one more, COUNT, at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from sqlglot import exp

from deferred.algebra.scalar import Scalar, column, columns_of, is_column, substitute

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.scan import Change, Scan
    from deferred.algebra.operators.temporary import Stored, Temporary
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.strategy import Strategy, SupportTables
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True, eq=False)
class Keys:
    """A small set of key values: rows of `plan`, of which `on` pairs (value of the restricted node, value of plan).

    The pairs are compared null-safely. A key set restricts what a rule reads; it never changes what a rule yields.
    """

    plan: Plan
    on: tuple[tuple[Scalar, Scalar], ...]

    @staticmethod
    def of(plan: Plan, columns: Iterable[tuple[str, str]]) -> Keys:
        """Keys that pair columns of the restricted node with columns of `plan`."""
        return Keys(plan, tuple((column(mine), column(theirs)) for mine, theirs in columns))

    @staticmethod
    def same(plan: Plan, columns: Iterable[str]) -> Keys:
        """Keys that pair columns with those of the same names."""
        return Keys.of(plan, ((c, c) for c in columns))

    def through(self, columns: Mapping[str, Scalar]) -> Keys | None:
        """The keys with `columns` replaced by their expressions; only the pairs that read no other column."""
        pairs = tuple(
            (substitute(mine, columns), theirs) for mine, theirs in self.on if columns_of(mine) <= columns.keys()
        )
        return replace(self, on=pairs) if pairs else None

    def within(self, columns: Iterable[str]) -> Keys | None:
        """The pairs that read only the given columns, None if there are none."""
        return self.through({c: column(c) for c in columns})

    def renamed(self, names: Mapping[str, str]) -> Keys | None:
        return self.through({old: column(new) for old, new in names.items()})

    def completes(self, keys: Keys) -> bool:
        """Whether these pairs are all pairs of `keys`."""
        return len(self.on) == len(keys.on)

    @property
    def plain(self) -> Keys | None:
        """The pairs on columns as they are, which can be compared anywhere.

        Below a filter or a join there are rows that the query itself would not evaluate an expression on, and there the
        expression may fail.
        """
        pairs = tuple((mine, theirs) for mine, theirs in self.on if is_column(mine))
        return replace(self, on=pairs) if pairs else None


Origin: TypeAlias = "tuple[Change | Temporary, str]"
"""A change or a temporary result, and one of its columns."""

Conjunction: TypeAlias = tuple[Scalar, ...]
"""Conditions that are all true; none of them means true."""

Demands: TypeAlias = Sequence[Conjunction]
"""What is asked of the rows of a node: a row matters if it meets one of them, for some values of other columns."""


class Writer(Protocol):
    """What a node needs to write itself as SQL: its inputs as items of FROM, and where the leaves are read."""

    def below(self, plan: Plan, alias: str) -> exp.Expr:
        """An input as an item of FROM."""
        ...

    def query(self, plan: Plan) -> exp.Query:
        """An input as a query of its own."""
        ...

    def scalar(self, expression: Scalar) -> exp.Expr: ...

    def scan(self, table: str) -> exp.Expr:
        """A base table at its cut."""
        ...

    def change(self, table: str) -> exp.Expr:
        """The net log of a base table."""
        ...

    def temporary(self, name: str) -> exp.Expr:
        """The result of an earlier step."""
        ...

    def stored(self, name: str) -> exp.Expr:
        """A support table, in which a key may have several rows: those of earlier batches, and the newest."""
        ...

    def fetched(self, stored: Stored, keys: Keys | None) -> exp.Expr | None:
        """Exactly the rows of a support table with some keys, or all of them, if they are few and were fetched."""
        ...

    def held(self, stored: Stored) -> Sequence[str]:
        """The columns of a support table: those of its rows, and those that say how new a row is."""
        ...

    def newest(self, stored: Stored, rows: exp.Query) -> exp.Query:
        """The rows that count among `rows` of a support table, which has all rows of a key or none."""
        ...

    def near(self, mine: Scalar, plan: Plan, theirs: Scalar) -> exp.Expr | None:
        """A condition on `mine` that holds wherever it equals a value of `theirs` in a small plan, as literals.

        It lets files be skipped; None where the values are not known, or cannot be written as literals.
        """
        ...

    def one_of(self, keys: Keys) -> exp.Expr | None:
        """The condition that a row's key occurs in a small set of keys, as literals; None where they are not known."""
        ...

    def broadcast(self, query: exp.Select, alias: str) -> exp.Select:
        """The query, with the hint that the item of that alias is small and should be sent to the data."""
        ...

    def written_out(self, source: exp.Expr, columns: Sequence[str]) -> exp.Query:
        """A signed bag of positive counts as plain rows."""
        ...


@dataclass(frozen=True, eq=False)
class Plan(ABC):
    """A query over bags. Nodes are compared by identity: a shared subplan is one object.

    Every part below is abstract on purpose. A class that omits one cannot be imported, so no operator
    silently gets a default. Nodes that occur only in derived plans extend `Derived`, which defines the parts for them.
    Nor does an operator silently get a rule of another one: a class that extends an operator names in `inherits` which
    of its parts are right for it, too.
    """

    called: ClassVar[str]
    """What messages call it, in the words of SQL."""

    row_by_row: ClassVar[bool]
    """Whether each output row is made of one input row, so that joining the node with a small change is one scan."""

    in_recursion: ClassVar[bool]
    """Whether a recursion may go through the node: more rows of its inputs never give fewer rows."""

    def __init_subclass__(cls, abstract: bool = False, inherits: Sequence[str] = ()) -> None:
        super().__init_subclass__()
        if abstract:
            return
        missing = [name for name in PARTS if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        missing += [name for name in FACTS if not hasattr(cls, name)]
        if missing:
            raise TypeError(f"The operator {cls.__name__} does not define {', '.join(missing)}.")
        others = [base for base in cls.__mro__[1:] if base in _OPERATORS]
        inherited = {part for base in others for part in vars(base) if part in (*PARTS, *FACTS)} - set(vars(cls))
        if inherited != set(inherits):
            raise TypeError(
                f"The operator {cls.__name__} inherits {', '.join(sorted(inherited)) or 'nothing'} from another one, "
                f"and has to name what it does not define itself: class {cls.__name__}(…, inherits=(…)). Unlike what "
                f"it names: {', '.join(sorted(inherited ^ set(inherits)))}."
            )
        _OPERATORS.add(cls)

    @property
    def title(self) -> str:
        """What `explain` calls this one: `called`, unless that says too little or too much."""
        return self.called

    # ---- structure

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The ids of its columns, in order."""

    @property
    @abstractmethod
    def children(self) -> tuple[Plan, ...]:
        """Its inputs."""

    @abstractmethod
    def with_children(self, children: Sequence[Plan]) -> Plan:
        """The same node over other inputs."""

    def rebuilt(self, children: Sequence[Plan]) -> Plan:
        """The node over these inputs: itself where they are its own, so that what is shared stays one object."""
        same = all(new is old for new, old in zip(children, self.children, strict=True))
        return self if same else self.with_children(children)

    @property
    @abstractmethod
    def expressions(self) -> tuple[Scalar, ...]:
        """The scalar expressions that the node itself holds."""

    @property
    @abstractmethod
    def unique_key(self) -> tuple[str, ...] | None:
        """Columns that no two of its rows share, None where duplicates are possible."""

    @property
    @abstractmethod
    def one_row(self) -> bool:
        """Whether it yields exactly one row whatever the tables hold."""

    @property
    @abstractmethod
    def looked_up_by(self) -> tuple[str, ...]:
        """The columns by which its delta rule looks rows of its input up, so that their values must be comparable."""

    @abstractmethod
    def origin(self, name: str) -> Origin | None:
        """The column of a single change or temporary result that has all values which a column of the node can have."""

    # ---- conditions: which of them a node holds, takes in or gives up

    @abstractmethod
    def pulled_up(self) -> tuple[Plan, list[Scalar]]:
        """The node without the conditions on free columns at its top; and those conditions.

        The columns that the conditions read are added to its output. Conditions further down stay where they are.
        """

    @abstractmethod
    def joined_on(self, equality: Scalar) -> Plan | None:
        """σ of an equality of two columns, as part of an inner join in this plan; None if no such join has them."""

    @abstractmethod
    def with_join_condition(self, change: Callable[[Scalar], Scalar]) -> Plan:
        """The node with `change` applied to the condition on which it joins its inputs, if it does."""

    # ---- pruning: no column is read that nothing above needs

    @abstractmethod
    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        """The columns of each input that the node reads when `needed` of its own columns are read."""

    @abstractmethod
    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        """The node over pruned inputs, with the columns that are needed."""

    # ---- maintenance

    @abstractmethod
    def delta(self, d: Differentiator) -> Plan | None:
        """Δ(self): the signed change between the two cuts, None when nothing can have changed."""

    @abstractmethod
    def restricted(self, keys: Keys) -> Plan:
        """self ⋉ keys, with the keys pushed down as far as they go."""

    @property
    @abstractmethod
    def strategy(self) -> Strategy:
        """How the node is maintained."""

    @abstractmethod
    def supported(self, tables: SupportTables) -> Plan:
        """The node with the support table that it can use, itself if it can use none."""

    @abstractmethod
    def reads(self, labels: Labels) -> str:
        """What a change makes the node read, for `explain`."""

    @abstractmethod
    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        """The rows of a node with free columns for every value of them, and the columns that hold these values."""

    @abstractmethod
    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        """What is asked of the rows of each input, from what is asked of the node's own; see `relevance.conditions`."""

    @abstractmethod
    def known(self, c: Conditions) -> Conjunction:
        """What holds for every row of the node, whatever the tables hold."""

    @property
    @abstractmethod
    def watched(self) -> Sequence[Scan]:
        """Tables of which every changed row matters, whatever the nodes between ask for: promises are made about it."""

    @abstractmethod
    def figure2(self, f: Figure2) -> Pair:
        """What the change deletes and adds, by the rule of Figure 2 that is the node's own."""

    # ---- the node in notation, in the reference evaluator, and as SQL

    @abstractmethod
    def labelled(self, labels: Labels) -> Mapping[str, str]:
        """Readable names for the columns that the node introduces."""

    @abstractmethod
    def notation(self, labels: Labels) -> str:
        """The node in the paper's notation."""

    @abstractmethod
    def evaluate(self, e: Evaluation) -> Bag:
        """Its rows with their multiplicities, straight from the definition of the operator."""

    @abstractmethod
    def sql(self, w: Writer) -> exp.Query:
        """One SELECT over its inputs."""

    def walk(self) -> Iterator[Plan]:
        """Every node below and including this one, shared ones once, parents first."""
        seen: set[int] = set()
        stack: list[Plan] = [self]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            stack.extend(reversed(node.children))


PARTS = tuple(sorted(Plan.__abstractmethods__))
FACTS = ("called", "row_by_row", "in_recursion")
"""What every operator must define."""

_OPERATORS: set[type] = set()
"""The classes that are operators, and no bases of operators."""


def transformed(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """The plan with `change` applied to every node, inputs first. Shared subplans stay shared."""
    done: dict[Plan, Plan] = {}

    def visit(node: Plan) -> Plan:
        if node not in done:
            done[node] = change(node.rebuilt([visit(child) for child in node.children]))
        return done[node]

    return visit(plan)


def replaced(plan: Plan, by: Callable[[Plan], Plan | None]) -> Plan:
    """The plan with other nodes in the place of some, the outermost first: what is replaced is not looked into.

    Where `by` returns None, a node stays. Shared subplans stay shared.
    """
    done: dict[Plan, Plan] = {}

    def visit(node: Plan) -> Plan:
        if node not in done:
            done[node] = by(node) or node.rebuilt([visit(child) for child in node.children])
        return done[node]

    return visit(plan)


def inputs_first(plan: Plan) -> Iterator[Plan]:
    """Every node once, each after its inputs."""
    done: set[Plan] = set()

    def visit(node: Plan) -> Iterator[Plan]:
        if node not in done:
            done.add(node)
            for child in node.children:
                yield from visit(child)
            yield node

    return visit(plan)


def used(*expressions: Scalar | None) -> frozenset[str]:
    """The columns that the expressions read."""
    return frozenset().union(*(columns_of(e) for e in expressions))


def free(plan: Plan) -> frozenset[str]:
    """The columns that a plan reads but does not produce: those of the outer query."""
    found: set[str] = set()
    for node in plan.walk():
        have = {c for child in node.children for c in child.columns}
        found |= used(*node.expressions) - have
    return frozenset(found)
