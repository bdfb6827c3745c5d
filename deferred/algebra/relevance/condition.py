"""The relevance condition of a base table: what a row must be like to change a view in some state of the other tables.

Theorem 3.1 and corollary 3.3: a row t is irrelevant if and only if C[t], the view's condition with t's values in it, is
unsatisfiable. The columns of other tables are eliminated once: the condition is the conjunction of all comparisons on
R's own columns, among those that the view's condition suggests, which the solver proves to follow from it. It may keep
a row that does not matter, and never drops one that does. Whole sets of rows, of which only ranges or a predicate are
known, are decided with the view's own condition, without elimination (theorem 3.2: C ∧ C_D is unsatisfiable).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

from deferred.algebra.plan import Conjunction, Plan, used
from deferred.algebra.relevance.conditions import MOST, OWN, demands
from deferred.algebra.relevance.constants import DATE, NUMBER, day_at
from deferred.algebra.relevance.logic import Dialect, Known, Logic
from deferred.algebra.scalar import Scalar, all_true, column, conjuncts, equated_columns, is_column, substitute

if TYPE_CHECKING:
    import z3

SECONDS = 1.0
"""The time for deriving the condition of one table; what is not proved by then is left out."""

CONSTANTS = 32
"""A column is compared with at most so many constants that the view's condition contains."""

T = TypeVar("T")

Decide = Callable[[Mapping[str, Known], Scalar | None], bool]
"""Whether some row can matter of which something is known by column, and perhaps a condition that is true of it."""


@dataclass(frozen=True)
class Relevance:
    """Which rows of a base table can matter to a view: those that meet one of the demands on its scans."""

    table: str
    demands: tuple[Conjunction, ...]
    types: Mapping[str, str] = field(repr=False)
    dialect: Dialect

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked of a row."""
        return () in self.demands

    @cached_property
    def condition(self) -> Scalar | None:
        """The relevance condition over the table's own columns; None where every row may matter.

        It cannot fail on any row, and where it is not true the row is irrelevant.
        """
        if self.is_open:
            return None
        logic, until = Logic(self.types, self.dialect), time.monotonic() + SECONDS
        found: list[Scalar] = []
        for demand in (part for whole in self.demands for part in _split(whole)):
            given = logic.conjunction(demand)
            if not logic.satisfiable(given):
                continue
            atoms = _following(logic, given, demand, until)
            if not atoms:
                return None
            found.append(all_true(atoms))
        weakest = _weakest(logic, found)
        whole = all_true(conjuncts(exp.or_(*weakest))) if weakest else exp.false()
        own = {name: column(name.removeprefix(OWN)) for name in used(whole)}
        return substitute(whole, own)

    def decider(self, columns: Mapping[str, str]) -> Decide:
        """Decides by the demands whether rows can matter. `columns` are all columns of the table with their types."""
        if self.is_open:
            return lambda known, predicate: True
        logic = Logic({**_own(columns), **self.types}, self.dialect)
        ways = [given for given in map(logic.conjunction, self.demands) if logic.satisfiable(given)]
        asked = frozenset().union(*(used(*demand) for demand in self.demands))
        predicates: dict[Scalar, z3.BoolRef] = {}

        def may_matter(known: Mapping[str, Known], predicate: Scalar | None) -> bool:
            read = asked | {OWN + name for name in used(predicate)}
            facts = [logic.known(OWN + name, what) for name, what in known.items() if OWN + name in read]
            if predicate is not None:
                if predicate not in predicates:
                    mine = substitute(predicate, {name: column(OWN + name) for name in used(predicate)})
                    predicates[predicate] = logic.truth(mine).true
                facts.append(predicates[predicate])
            return any(logic.satisfiable(given, *facts) for given in ways)

        return may_matter


def relevance_of(plan: Plan, types: Mapping[str, str], dialect: Dialect) -> dict[str, Relevance]:
    """For every base table of a plan, which of its rows can matter."""
    asked: dict[str, list[Conjunction]] = {}
    own: dict[str, dict[str, str]] = {}
    for scan, demanded in demands(plan).items():
        own.setdefault(scan.table, {}).update(zip(scan.names, (types[i] for i in scan.ids), strict=True))
        mine = {i: column(OWN + name) for name, i in zip(scan.names, scan.ids, strict=True)}
        listed = [tuple(substitute(part, mine) for part in demand) for demand in demanded]
        asked.setdefault(scan.table, []).extend(listed)
    return {
        table: Relevance(table, tuple(listed), {**types, **_own(own[table])}, dialect)
        for table, listed in asked.items()
    }


def _own(columns: Mapping[str, str]) -> dict[str, str]:
    return {OWN + name: type_ for name, type_ in columns.items()}


def _split(demand: Conjunction) -> list[Conjunction]:
    """A demand as several, one for each side of its disjunctions of more than one table's columns; at most MOST.

    What holds of R's columns on one side only would be lost otherwise: (a = 1 AND x = 2) OR (a = 3 AND x = 4).
    """
    ways: list[Conjunction] = [()]
    for part in demand:
        sides = [part]
        if isinstance(part, exp.Or) and len({name.startswith(OWN) for name in used(part)}) > 1:
            sides = list(part.flatten())
        if len(ways) * len(sides) > MOST:
            sides = [part]
        ways = [(*way, *conjuncts(side)) for way in ways for side in sides]
    return ways


def _following(logic: Logic, given: z3.BoolRef, demand: Conjunction, until: float) -> list[Scalar]:
    """Comparisons on R's own columns that follow from a condition, none of them from the others."""
    kept: dict[Scalar, z3.BoolRef] = {}
    for candidate in _candidates(logic, given, demand):
        if time.monotonic() > until:
            break
        formula = logic.truth(candidate).true
        if logic.implied([given], formula) and not logic.implied(kept.values(), formula):
            kept[candidate] = formula
    for candidate in list(kept):
        if time.monotonic() > until:
            break
        rest = [formula for other, formula in kept.items() if other is not candidate]
        if logic.implied(rest, kept[candidate]):
            del kept[candidate]
    return list(kept)


def _weakest(logic: Logic, conditions: Sequence[Scalar]) -> list[Scalar]:
    """The conditions without those that imply another one."""
    kept: dict[Scalar, z3.BoolRef] = {}
    for condition in conditions:
        formula = logic.truth(condition).true
        if any(logic.implied([formula], other) for other in kept.values()):
            continue
        kept = {other: f for other, f in kept.items() if not logic.implied([f], formula)}
        kept[condition] = formula
    return list(kept)


def _candidates(logic: Logic, given: z3.BoolRef, demand: Conjunction) -> Iterator[Scalar]:
    """Comparisons that may follow: the view's own ones first, then bounds, then pairs of columns, then NOT NULL.

    What the view compares itself says all about its columns, unless they are compared with columns of other tables, or
    in a way that cannot be asked as it is; only then there is more to find.
    """
    names = _equal_columns(demand)
    others: list[frozenset[str]] = []
    own: list[frozenset[str]] = []
    equated: set[str] = set()
    for part in demand:
        mine = substitute(part, names)
        read = used(mine)
        trivial = isinstance(mine, (exp.EQ, exp.NullSafeEQ)) and mine.this == mine.expression
        if trivial and is_column(mine.this) and mine.this.name.startswith(OWN):
            equated |= read if isinstance(mine, exp.EQ) else set()  # what is left of it is that it is not NULL
        elif read and all(name.startswith(OWN) for name in read) and logic.understood(mine):
            own.append(read)
            yield mine
        else:
            others.append(read)
    columns = sorted(name for name in _reached(others, own) if name.startswith(OWN))
    for name in columns:
        yield from _bounds(logic, given, name)
    for one, other in combinations(columns, 2):
        left, right = logic.column(one).kind, logic.column(other).kind
        if left is not None and right is not None and left.compares_exactly(right):
            for operator in (exp.EQ, exp.LT, exp.GT, exp.LTE, exp.GTE):
                yield operator(this=column(one), expression=column(other))
    for name in sorted({*columns, *equated}):
        yield exp.Not(this=exp.Is(this=column(name), expression=exp.Null()))


def _reached(start: Iterable[frozenset[str]], links: Sequence[frozenset[str]]) -> set[str]:
    """The columns of some conditions, and those that other conditions link to them.

    >>> sorted(_reached([frozenset("ax")], [frozenset("ab"), frozenset("cd"), frozenset("bd")]))
    ['a', 'b', 'c', 'd', 'x']
    >>> sorted(_reached([], [frozenset("ab")]))
    []
    """
    found = set().union(*start)
    rest = list(links)
    while linked := [link for link in rest if link & found]:
        found.update(*linked)
        rest = [link for link in rest if not link <= found]
    return found


def _equal_columns(demand: Conjunction) -> dict[str, Scalar]:
    """A column of R for every column of another row that the conjuncts equate to it, perhaps by way of others."""
    classes: dict[str, set[str]] = {}
    for pair in filter(None, map(equated_columns, demand)):
        merged = classes.get(pair[0], {pair[0]}) | classes.get(pair[1], {pair[1]})
        classes.update(dict.fromkeys(merged, merged))
    mine = {name: sorted(c for c in equal if c.startswith(OWN)) for name, equal in classes.items()}
    return {name: column(own[0]) for name, own in mine.items() if own and not name.startswith(OWN)}


def _bounds(logic: Logic, given: z3.BoolRef, name: str) -> Iterator[Scalar]:
    """Comparisons of a column with constants: the least and the greatest integer or date that it can be, and for other
    types the constants of the view's condition: those that it can equal, as a list, and each as a bound."""
    value = logic.column(name)
    if value.kind is None or value.place is None:
        return
    if value.kind.whole and value.kind.name in (NUMBER, DATE):
        written = _number if value.kind.name == NUMBER else _date
        present = logic.z3.And(given, logic.z3.Not(value.null))
        low, high = (logic.extreme(present, value.place, greatest) for greatest in (False, True))
        if low is not None and low == high:
            yield exp.EQ(this=column(name), expression=written(low))
            return
        if low is not None:
            yield exp.GTE(this=column(name), expression=written(low))
        if high is not None:
            yield exp.LTE(this=column(name), expression=written(high))
        return
    found = [(place, constant) for (kind, place), constant in logic.constants.items() if kind == value.kind.name]
    places = sorted(found, key=lambda each: each[0])
    equal = [exp.EQ(this=column(name), expression=constant.copy()) for _, constant in _outer(places)]
    possible = [each for each in equal if logic.satisfiable(given, logic.truth(each).true)]
    if 1 < len(possible) < CONSTANTS:
        yield exp.In(this=column(name), expressions=[each.expression.copy() for each in possible])
    for _, constant in _outer(places):
        for operator in (exp.EQ, exp.GT, exp.LT, exp.GTE, exp.LTE):
            yield operator(this=column(name), expression=constant.copy())


def _outer(values: Sequence[T]) -> Iterator[T]:
    """At most CONSTANTS of some sorted values, from both ends: what bounds a list are its ends.

    >>> list(_outer("abcde")), len(list(_outer(range(100))))
    (['a', 'e', 'b', 'd', 'c'], 32)
    """
    for place in range(min(len(values), CONSTANTS)):
        yield values[place // 2] if place % 2 == 0 else values[-1 - place // 2]


def _number(value: int) -> Scalar:
    literal = exp.Literal.number(abs(value))
    return exp.Neg(this=literal) if value < 0 else literal


def _date(place: int) -> Scalar:
    return exp.cast(exp.Literal.string(day_at(place)), "date")
