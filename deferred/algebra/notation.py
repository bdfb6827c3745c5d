"""Plans in the paper's notation, on one line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import count, permutations

from sqlglot import exp

from deferred.algebra.operators import Change, Scan
from deferred.algebra.operators.scan import scans_of
from deferred.algebra.plan import Plan, used
from deferred.algebra.scalar import Scalar, rewrite

LONGEST = 40
"""A computed column with a longer expression is shown by its id."""


def notation(plan: Plan) -> str:
    """A plan in the paper's notation; columns have the names they have in their tables.

    >>> from sqlglot import parse_one
    >>> from deferred.algebra.operators import Aggregate, Distinct, Join, Project, SetOperation
    >>> from deferred.algebra.scalar import column
    >>> r, s = Scan("R", ("A", "B"), ("c1", "c2")), Scan("S", ("B", "C"), ("c3", "c4"))
    >>> notation(Project(Join((r, s), parse_one("c2 = c3")), (("c5", column("c1")),)))
    'Π[A](R ⋈[R.B = S.B] S)'
    >>> notation(SetOperation(Distinct(r), s, "EXCEPT", True, ("c5", "c6")))
    'ε(R) ∸ S'
    >>> notation(Aggregate(r, ("c1",), (("c5", parse_one("sum(c2)")),)))
    'γ[A; SUM(B)](R)'
    """
    return Labels(plan).text(plan)


class Labels:
    """Readable names for the columns and tables of a plan, with which nodes write their notation.

    A column has its name in its table, with the table's name where two tables share it; a computed one is its
    expression. A table that is joined with itself, in whatever way, has a prime for each further occurrence.
    """

    def __init__(self, plan: Plan) -> None:
        self.primes = _primes(plan)
        self._shared = Counter(name for scan in scans_of(plan) for name in set(scan.names))
        self._columns: dict[str, str] = {}
        self._seen: set[Plan] = set()
        self._learn(plan)

    def _learn(self, plan: Plan) -> None:
        if plan in self._seen:
            return
        self._seen.add(plan)
        for child in plan.children:
            self._learn(child)
        self._columns |= plan.labelled(self)

    # ---- names

    def table(self, scan: Scan | Change) -> str:
        return scan.table + self.primes.get(scan.ids, "")

    def is_ambiguous(self, name: str) -> bool:
        """Whether several tables have a column of that name."""
        return self._shared[name] > 1

    def column(self, name: str) -> str:
        return self._columns.get(name, name)

    def columns(self, names: Iterable[str]) -> str:
        return ", ".join(map(self.column, names))

    # ---- expressions

    def scalar(self, expression: Scalar) -> str:
        """SQL with the columns under their labels."""

        def relabel(node: Scalar) -> Scalar | None:
            if not isinstance(node, exp.Column):
                return None
            return exp.Column(this=exp.Identifier(this=self.column(node.name), quoted=False))

        return rewrite(expression, relabel).sql(dialect="spark")

    def computed(self, name: str, expression: Scalar) -> str:
        """The label of a computed column: its expression, or its id where that is long."""
        text = self.scalar(expression)
        if isinstance(expression, (exp.Column, exp.Literal, exp.Func, exp.Window)):
            return text if len(text) <= LONGEST else name
        return f"({text})" if len(text) <= LONGEST else name

    def outputs(self, outputs: Iterable[tuple[str, Scalar]]) -> str:
        texts = []
        for name, expression in outputs:
            text = self.scalar(expression)
            texts.append(text if len(text) <= LONGEST else f"{text} → {name}")
        return ", ".join(texts)

    # ---- plans

    def text(self, plan: Plan) -> str:
        return plan.notation(self)

    def infix(self, symbol: str, sides: Sequence[Plan]) -> str:
        return f" {symbol} ".join(map(self._side, sides))

    def _side(self, plan: Plan) -> str:
        """An operand, in parentheses when it is an infix operation itself."""
        text = self.text(plan)
        return text if _is_closed(text) else f"({text})"


def _is_closed(text: str) -> bool:
    """Whether a text needs no parentheses next to an infix symbol: it has no space outside its brackets.

    >>> _is_closed("σ[a = 1](R ∸ S)"), _is_closed("R ∸ S")
    (True, False)
    """
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == " " and depth == 0:
            return False
    return True


def _primes(plan: Plan) -> dict[tuple[str, ...], str]:
    """For the columns of each scan the primes of its table, by which it differs from all those that it meets."""
    met: defaultdict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for node in filter(_reads_several, plan.walk()):
        for one, another in permutations(map(scans_of, node.children), 2):
            for scan in one:
                met[scan.ids].update(other.ids for other in another if other.table == scan.table)
    primes: dict[tuple[str, ...], str] = {}
    for ids in dict.fromkeys(scan.ids for scan in scans_of(plan)):
        taken = {primes.get(other) for other in met[ids]}
        primes[ids] = next(text for text in ("′" * number for number in count()) if text not in taken)
    return primes


def _reads_several(plan: Plan) -> bool:
    """Whether columns of several inputs meet in a node, as in a join; in a set operation they stand for one another."""
    read = used(*plan.expressions) | frozenset(plan.columns)
    return len({found for child in plan.children if (found := read & frozenset(child.columns))}) > 1
