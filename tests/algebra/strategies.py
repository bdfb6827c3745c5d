"""Hypothesis strategies for the algebra: random queries, states, transactions and logs.

Three tables of two columns, values 0, 1, 2 and NULL, so that rows meet, repeat and vanish often. Queries are up to
five operators deep. What a strategy promises (a log is weakly minimal, an invariant holds) it makes true by
construction, with arithmetic on Counters only, never with the code under test.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st
from sqlglot import exp

from deferred.algebra.operators import (
    ANTI,
    FULL,
    LEFT,
    SEMI,
    Aggregate,
    Counted,
    Distinct,
    Filter,
    Generate,
    GroupPart,
    Join,
    Kept,
    KeptRows,
    KeptValues,
    Limit,
    OuterJoin,
    Project,
    Recursion,
    Reference,
    Scan,
    SetOperation,
    UnionAll,
    Values,
    Window,
)
from deferred.algebra.operators.aggregate import TOTAL_OVER_KEPT
from deferred.algebra.operators.counted import PARTS, Rows
from deferred.algebra.operators.edited import Edited
from deferred.algebra.operators.in_view import Seen
from deferred.algebra.operators.promised_join import PromisedJoin
from deferred.algebra.operators.rederiving import DeleteRederive
from deferred.algebra.operators.referring import Referring
from deferred.algebra.operators.scan import tables_of
from deferred.algebra.operators.unmet import Unmet, Watched
from deferred.algebra.paper.evaluate import Bag, State, Table
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Fresh, Scalar, column, conjunction, same
from deferred.algebra.strategy import support_tables

SCHEMA: Mapping[str, tuple[str, ...]] = {"R": ("a", "b"), "S": ("b", "c"), "T": ("c", "a")}
VALUES = (0, 1, 2, None)
DEPTH = 5


# Scalars


def literal(value: int | None) -> Scalar:
    return exp.Null() if value is None else exp.Literal.number(value)


def function(name: str, argument: Scalar) -> Scalar:
    return exp.Anonymous(this=name, expressions=[argument])


@st.composite
def operands(draw, columns: tuple[str, ...]) -> Scalar:
    """A column, sometimes a constant or a small computation."""
    first = column(draw(st.sampled_from(columns)))
    second = column(draw(st.sampled_from(columns)))
    one = exp.Literal.number(1)
    case = exp.Case(
        ifs=[exp.If(this=exp.EQ(this=first.copy(), expression=second.copy()), true=one.copy())], default=second.copy()
    )
    shapes = [first] * 8 + [
        literal(draw(st.sampled_from(VALUES))),
        exp.Neg(this=first.copy()),
        exp.Add(this=first.copy(), expression=second.copy()),
        exp.Sub(this=first.copy(), expression=one.copy()),
        case,
    ]
    return draw(st.sampled_from(shapes))


@st.composite
def conditions(draw, columns: tuple[str, ...], depth: int = 2) -> Scalar:
    """A predicate in three-valued logic."""
    shape = draw(st.sampled_from(("compare", "compare", "or", "or", "null", "not", "and"))) if depth else "compare"
    if shape in ("and", "or"):
        left, right = draw(conditions(columns, depth - 1)), draw(conditions(columns, depth - 1))
        connector = exp.And if shape == "and" else exp.Or
        return connector(this=exp.Paren(this=left), expression=exp.Paren(this=right))
    if shape == "not":
        return exp.Not(this=exp.Paren(this=draw(conditions(columns, depth - 1))))
    operand = draw(operands(columns))
    if shape == "null":
        return exp.Is(this=operand.copy(), expression=exp.Null())
    comparison = draw(st.sampled_from((exp.GTE, exp.NEQ, exp.LTE, exp.EQ, exp.LT, exp.GT, exp.NullSafeEQ)))
    other = draw(st.one_of(st.sampled_from((0, 1, 2)).map(literal), operands(columns)))
    return comparison(this=operand.copy(), expression=other.copy())


@st.composite
def join_conditions(draw, inputs: tuple[Plan, ...]) -> Scalar | None:
    """Equalities that chain the inputs, some of them left out, null-safe or joined by another condition."""
    parts: list[Scalar] = []
    for left, right in itertools.pairwise(inputs):
        pair = column(draw(st.sampled_from(left.columns))), column(draw(st.sampled_from(right.columns)))
        kind = draw(st.sampled_from(("=", "=", "<=>", "none")))
        if kind != "none":
            parts.append(exp.EQ(this=pair[0], expression=pair[1]) if kind == "=" else same(*pair))
    if draw(st.integers(0, 3)) == 0:
        parts.append(draw(conditions(tuple(c for plan in inputs for c in plan.columns), 1)))
    return conjunction(parts)


# Queries: one function per form; each draws a query of the given arity, at most `depth` operators deep


@dataclass(frozen=True)
class Forms:
    """The operators that a query may be made of, and the source of its column ids."""

    leaves: tuple[Callable[..., Plan], ...]
    operators: tuple[Callable[..., Plan], ...]
    fresh: Fresh

    def query(self, draw, arity: int, depth: int) -> Plan:
        usable = self.operators if depth else self.leaves
        if arity == 1:
            usable = tuple(form for form in usable if form not in TWO_COLUMNS)
        return draw(st.sampled_from(usable))(self, draw, arity, depth)

    def new_ids(self, count: int) -> tuple[str, ...]:
        return tuple(self.fresh() for _ in range(count))

    def below(self, draw, arity: int, depth: int) -> Plan:
        """A subquery, often shallower than it might be."""
        return self.query(draw, arity, draw(st.integers(max(0, depth - 2), depth - 1)))


def scan(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """A table: some of its columns, or two occurrences of tables for more columns than it has."""
    if arity > 2:
        return Join((scan(forms, draw, 2, 0), scan(forms, draw, arity - 2, 0)))
    name = draw(st.sampled_from(sorted(SCHEMA)))
    names = SCHEMA[name] if arity == 2 else (draw(st.sampled_from(SCHEMA[name])),)
    return Scan(name, names, forms.new_ids(arity))


def constant(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """φ or {x}."""
    rows = [draw(st.tuples(*[st.sampled_from(VALUES)] * arity))] if draw(st.integers(0, 3)) else []
    return Values(forms.new_ids(arity), tuple(tuple(map(literal, row)) for row in rows))


def selection(forms: Forms, draw, arity: int, depth: int) -> Plan:
    child = forms.below(draw, arity, depth)
    return Filter(child, draw(conditions(child.columns)))


def projection(forms: Forms, draw, arity: int, depth: int) -> Plan:
    child = forms.below(draw, draw(st.integers(1, 4)), depth)
    return Project(child, tuple((forms.fresh(), draw(operands(child.columns)).copy()) for _ in range(arity)))


def distinct(forms: Forms, draw, arity: int, depth: int) -> Plan:
    return Distinct(forms.below(draw, arity, depth))


def union_all(forms: Forms, draw, arity: int, depth: int) -> Plan:
    inputs = tuple(forms.below(draw, arity, depth) for _ in range(draw(st.integers(2, 3))))
    return UnionAll(inputs, forms.new_ids(arity))


def monus(forms: Forms, draw, arity: int, depth: int) -> Plan:
    left, right = forms.below(draw, arity, depth), forms.below(draw, arity, depth)
    return SetOperation(left, right, "EXCEPT", True, forms.new_ids(arity))


def product(forms: Forms, draw, arity: int, depth: int) -> Plan:
    split = draw(st.integers(1, arity - 1))
    return Join((forms.below(draw, split, depth), forms.below(draw, arity - split, depth)))


def join(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """Two or three inputs and a condition."""
    inputs = []
    left = arity
    while left and len(inputs) < 2:
        taken = draw(st.integers(1, left if inputs else left - 1))
        inputs.append(forms.below(draw, taken, depth))
        left -= taken
    if left:
        inputs.append(forms.below(draw, left, depth))
    return Join(tuple(inputs), draw(join_conditions(tuple(inputs))))


def set_operation(forms: Forms, draw, arity: int, depth: int) -> Plan:
    left, right = forms.below(draw, arity, depth), forms.below(draw, arity, depth)
    kind, every = draw(st.sampled_from(("EXCEPT", "INTERSECT"))), draw(st.booleans())
    return SetOperation(left, right, kind, every, forms.new_ids(arity))


def aggregate(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """γ with any number of grouping columns, none of them included, and at least one aggregate where arity allows."""
    child = forms.below(draw, draw(st.integers(1, 3)), depth)
    keys = draw(st.lists(st.sampled_from(child.columns), unique=True, max_size=arity))
    outputs = []
    for _ in range(arity - len(keys)):
        name = draw(st.sampled_from(("count", "sum", "min", "max", "avg", "*", "distinct")))
        argument = draw(operands(child.columns)).copy()
        call = {
            "*": lambda _: function("count", exp.Star()),
            "distinct": lambda a: function("count", exp.Distinct(expressions=[a])),
        }
        outputs.append((forms.fresh(), call.get(name, lambda a, name=name: function(name, a))(argument)))
    return Aggregate(child, tuple(keys), tuple(outputs))


def outer_join(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """⟕ and ⟗ with the columns of both sides, ⋉ and ▷ with those of the left one."""
    kind = draw(st.sampled_from((LEFT, FULL, SEMI, ANTI)))
    split = draw(st.integers(1, arity - 1)) if kind in (LEFT, FULL) else arity
    left = forms.below(draw, split, depth)
    right = forms.below(draw, arity - split or draw(st.integers(1, 2)), depth)
    condition = draw(join_conditions((left, right)))
    return OuterJoin(left, right, kind, condition if condition is not None else exp.true())


@st.composite
def orders(draw, columns: tuple[str, ...]) -> list[exp.Ordered]:
    keys = draw(st.lists(st.sampled_from(columns), unique=True, min_size=1, max_size=2))
    return [exp.Ordered(this=column(key), desc=draw(st.booleans()), nulls_first=draw(st.booleans())) for key in keys]


def limit(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """The first rows of an order; without a last one only with an offset."""
    child = forms.below(draw, arity, depth)
    count = draw(st.one_of(st.none(), st.integers(0, 4)))
    offset = draw(st.integers(0 if count is not None else 1, 2))
    return Limit(child, tuple(draw(orders(child.columns))), count, offset)


def window(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """One window function beside the columns of its input, with or without partition, order and frame."""
    child = forms.below(draw, arity - 1, depth)
    partition = draw(st.lists(st.sampled_from(child.columns), unique=True, max_size=2))
    name = draw(st.sampled_from(("row_number", "rank", "dense_rank", "lag", "sum", "count", "max", "first_value")))
    argument = draw(st.sampled_from(child.columns).map(column))
    arguments = [] if name in ("row_number", "rank", "dense_rank") else [argument]
    ordered = not arguments or name in ("lag", "first_value") or draw(st.booleans())
    rows = ordered and name in ("sum", "count", "max") and draw(st.booleans())
    frame = exp.WindowSpec(kind="ROWS", start="1", start_side="PRECEDING", end="CURRENT ROW") if rows else None
    over = exp.Window(
        this=exp.Anonymous(this=name.upper(), expressions=arguments),
        partition_by=[column(c) for c in partition],
        order=exp.Order(expressions=draw(orders(child.columns))) if ordered else None,
        spec=frame,
        over="OVER",
    )
    return Window(child, tuple(partition), ((forms.fresh(), over),))


def generate(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """explode of an array of up to two elements, which may be empty or NULL."""
    child = forms.below(draw, arity - 1, depth)
    elements = [column(c) for c in draw(st.lists(st.sampled_from(child.columns), max_size=2))]
    array: Scalar = exp.Anonymous(this="ARRAY", expressions=elements)
    if draw(st.booleans()):
        unknown = exp.Is(this=column(child.columns[0]), expression=exp.Null())
        array = exp.Case(ifs=[exp.If(this=unknown, true=exp.Null())], default=array)
    return Generate(child, function("EXPLODE", array), (forms.fresh(),), draw(st.booleans()))


# ... and the same with what is kept in a support table


def counted_aggregate(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """γ whose counts, sums and extremes are kept per group."""
    child = forms.below(draw, draw(st.integers(1, 3)), depth)
    keys = draw(st.lists(st.sampled_from(child.columns), unique=True, max_size=arity - 1))
    parts: list[GroupPart] = [Rows(forms.fresh("p"), "bigint")]
    outputs, finals = [], []
    for _ in range(arity - len(keys)):
        kind, argument = draw(st.sampled_from(("count", "sum", "min", "max"))), draw(st.sampled_from(child.columns))
        part = PARTS[kind](forms.fresh("p"), "decimal(38,0)" if kind == "sum" else "bigint", argument)
        parts.append(part)
        name, value = forms.fresh(), column(part.id)
        call = function(kind, column(argument))
        if kind == "sum":  # a kept sum is 0 over nothing; here the output is, too
            call = exp.Anonymous(this="COALESCE", expressions=[call, exp.Literal.number(0)])
        outputs.append((name, call))
        finals.append((name, value))
    chosen = Counted(forms.fresh("support"), tuple(parts), tuple(finals))
    return Aggregate(child, tuple(keys), tuple(outputs), chosen)


def kept_total(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """A total over values that are kept with their counts."""
    child = Kept(forms.below(draw, draw(st.integers(1, 2)), depth), KeptValues(forms.fresh("support")))
    outputs = [
        (
            forms.fresh(),
            function(draw(st.sampled_from(("avg", "sum", "count"))), column(draw(st.sampled_from(child.columns)))),
        )
        for _ in range(arity)
    ]
    return Aggregate(child, (), tuple(outputs), TOTAL_OVER_KEPT)


def kept_limit(forms: Forms, draw, arity: int, depth: int) -> Plan:
    child = forms.below(draw, arity, depth)
    count, offset = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    return Limit(child, tuple(draw(orders(child.columns))), count, offset, KeptRows(forms.fresh("support")))


def closure(forms: Forms, draw, arity: int, depth: int) -> Plan:
    """A recursion by UNION: its rows are joined with others, and no new values are made, so that it ends."""
    start, others = forms.below(draw, arity, depth), forms.below(draw, arity, depth)
    reference = Reference(forms.fresh("recursion"), "x", forms.new_ids(arity), tuple(f"x{i}" for i in range(arity)))
    mine = Project(reference, tuple((forms.fresh(), column(c)) for c in reference.ids))
    linked = exp.EQ(this=column(mine.columns[-1]), expression=column(others.columns[0]))
    joined = Join((mine, others), linked)
    outputs = tuple((i, column(draw(st.sampled_from(joined.columns)))) for i in reference.ids)
    kept = DeleteRederive(forms.fresh("support"))
    return Recursion(UnionAll((start,), reference.ids), Project(joined, outputs), reference, False, kept=kept)


TWO_COLUMNS = (product, join, outer_join, window, generate)
"""Forms whose queries have at least two columns."""

FORMS: Mapping[type[Plan], tuple[Callable[..., Plan], ...]] = {
    UnionAll: (union_all,),
    Filter: (selection,),
    Project: (projection,),
    Distinct: (distinct,),
    Join: (join, join),
    OuterJoin: (outer_join,),
    SetOperation: (set_operation,),
    Aggregate: (aggregate,),
    Window: (window,),
    Limit: (limit,),
    Generate: (generate,),
}
"""The forms of every operator that a view can have above its leaves."""

LEAVES: Mapping[type[Plan], tuple[Callable[..., Plan], ...]] = {Scan: (scan,) * 9, Values: (constant,)}
ONLY_KEEPING: Mapping[type[Plan], tuple[Callable[..., Plan], ...]] = {
    Kept: (kept_total,),
    Recursion: (closure,),
    Reference: (closure,),
}
"""Operators that a view gets only together with a support table."""

ONLY_EDITED = (Edited,)
"""Operators of a query that becomes another one: tests/fuzz/test_altering.py draws those."""

ONLY_PROMISED = (PromisedJoin, Referring, Seen, Unmet, Watched)
"""Operators over tables that keep declared keys and references: tests/fuzz/promised.py draws those, and asks for each."""

PAPER = (union_all, selection, projection, distinct, monus, product, product)
SQL = tuple(itertools.chain.from_iterable(FORMS.values()))
KEEPING = (
    counted_aggregate,
    kept_total,
    kept_limit,
    closure,
    selection,
    projection,
    join,
    outer_join,
    distinct,
    aggregate,
)
SELECT_PROJECT_JOIN = (selection, projection, join)


@st.composite
def _queries(draw, operators: tuple[Callable[..., Plan], ...], leaves: tuple[Callable[..., Plan], ...]) -> Plan:
    forms = Forms(leaves, operators, Fresh())
    query = forms.query(draw, draw(st.integers(1, 3)), draw(st.integers(1, DEPTH)))
    assume(tables_of(query))
    return query


def paper_queries() -> st.SearchStrategy[Plan]:
    """Queries of the paper's nine forms."""
    return _queries(PAPER, tuple(itertools.chain.from_iterable(LEAVES.values())))


def sql_queries() -> st.SearchStrategy[Plan]:
    """Queries with every operator that a view can have."""
    return _queries(SQL, tuple(itertools.chain.from_iterable(LEAVES.values())))


def keeping_queries() -> st.SearchStrategy[Plan]:
    """Queries in which some nodes keep rows in support tables."""
    return _queries(KEEPING, (scan,)).filter(support_tables)


def select_project_join_queries() -> st.SearchStrategy[Plan]:
    return _queries(SELECT_PROJECT_JOIN, (scan,))


# States

ROWS = {arity: tuple(itertools.product(VALUES, repeat=arity)) for arity in range(1, 4)}


def bags(arity: int, least: int = 0, most: int = 6) -> st.SearchStrategy[Bag]:
    """A bag of between `least` and `most` rows, duplicates counted."""
    return st.lists(st.sampled_from(ROWS[arity]), min_size=least, max_size=most).map(Counter)


def subbags(bag: Bag) -> st.SearchStrategy[Bag]:
    """Any bag ⊆ bag."""
    if not bag:
        return st.just(Counter())
    return st.lists(st.sampled_from(list(bag)), max_size=6).map(lambda rows: Counter(rows) & bag)


def table_states() -> st.SearchStrategy[dict[str, Table]]:
    """Contents for every base table, none of them empty: a log empties them often enough."""
    return st.fixed_dictionaries({name: bags(2, least=3, most=8) for name in SCHEMA}).map(
        lambda drawn: {name: Table(SCHEMA[name], bag) for name, bag in drawn.items()}
    )


@st.composite
def with_changes(draw, state: State, down: str, up: str, tables: Iterable[str]) -> dict[str, Table]:
    """The state with the auxiliary tables of weakly minimal changes: `down`R ⊆ R, `up`R anything."""
    auxiliary = {}
    for name, columns in SCHEMA.items():
        taken, added = Counter(), Counter()
        if name in tables:
            taken, added = draw(subbags(state[name].rows)), draw(bags(2, most=4))
        auxiliary |= {f"{down}{name}": Table(columns, taken), f"{up}{name}": Table(columns, added)}
    return {**state, **auxiliary}


def changed_tables() -> st.SearchStrategy[frozenset[str]]:
    """Often all of them."""
    some = st.sets(st.sampled_from(sorted(SCHEMA)), min_size=1).map(frozenset)
    return st.one_of(st.just(frozenset(SCHEMA)), some)


@st.composite
def logged_states(draw) -> dict[str, Table]:
    """A current state s_c with a weakly minimal log: ▲R ⊆ R, ▼R anything."""
    return draw(with_changes(draw(table_states()), "▲", "▼", draw(changed_tables())))


@st.composite
def transaction_states(draw) -> dict[str, Table]:
    """A state with a weakly minimal transaction that is still to come: ∇R ⊆ R, ΔR anything."""
    return draw(with_changes(draw(table_states()), "∇", "Δ", draw(changed_tables())))


@st.composite
def logged_transaction_states(draw) -> dict[str, Table]:
    """A current state with both a weakly minimal log and a weakly minimal transaction to come."""
    return draw(with_transaction(draw(logged_states())))


def with_transaction(state: State) -> st.SearchStrategy[dict[str, Table]]:
    """The state with another weakly minimal transaction to come."""
    return changed_tables().flatmap(lambda tables: with_changes(state, "∇", "Δ", tables))


@st.composite
def with_view(draw, state: State, columns: tuple[str, ...], value: Bag) -> dict[str, Table]:
    """The state with MV, ∇MV ⊆ MV and ΔMV such that (MV ∸ ∇MV) ⊎ ΔMV is the given value."""
    added = draw(subbags(value))
    removed = draw(bags(len(columns), most=4))
    tables = {"MV": value - added + removed, "∇MV": removed, "ΔMV": added}
    return {**state, **{name: Table(columns, bag) for name, bag in tables.items()}}


def past_state(state: State) -> dict[str, Table]:
    """s_p of a logged state, by counting: R = (R ∸ ▲R) ⊎ ▼R."""
    return {
        name: Table(columns, state[name].rows - state[f"▲{name}"].rows + state[f"▼{name}"].rows)
        for name, columns in SCHEMA.items()
    }


def future_state(state: State) -> dict[str, Table]:
    """𝒯(s) of a state with a transaction, by counting: R = (R ∸ ∇R) ⊎ ΔR."""
    return {
        name: Table(columns, state[name].rows - state[f"∇{name}"].rows + state[f"Δ{name}"].rows)
        for name, columns in SCHEMA.items()
    }


def net_changes(state: State, tables: Iterable[str]) -> dict[str, Table]:
    """The net log ▲R − ▼R of the given tables, as signed counts."""
    return {name: Table(SCHEMA[name], signed(state[f"▲{name}"].rows, state[f"▼{name}"].rows)) for name in tables}


def signed(more: Bag, less: Bag) -> Bag:
    """more − less, with signs."""
    difference = Counter(more)
    difference.subtract(less)
    return Counter({row: n for row, n in difference.items() if n})
