"""Signed bags inside plans: netted, counted, and written out as plain bags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.nodes import Derived, Unary
from deferred.algebra.plan import Origin, Writer
from deferred.algebra.scalar import Scalar

if TYPE_CHECKING:
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation


@dataclass(frozen=True, eq=False)
class Net(Derived, Unary):
    """A signed bag in which every row occurs once, with its summed count, and never with zero.

    Rows are compared bit by bit where SQL equates different values: `bitwise` has the types of the columns in which
    0.0 and −0.0 can occur, or strings that a collation equates, or maps with their entries in another order.
    """

    bitwise: Mapping[str, str] = field(default_factory=dict)

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    def origin(self, name: str) -> Origin | None:
        return self.child.origin(name)

    def notation(self, labels: Labels) -> str:
        return f"net({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        return Counter({(*row, count): 1 for row, count in e.netted(e(self.child)).items()})

    def sql(self, w: Writer) -> exp.Query:
        return bags.net(w.below(self.child, "q"), [(c, self.bitwise.get(c, "")) for c in self.columns[:-1]])


@dataclass(frozen=True, eq=False)
class Summed(Derived, Unary):
    """Every row once with the sums of its counts, the last columns; rows that GROUP BY equates are one row.

    For operators that ask only how often a row is there: copies are never written out, however many there are.
    """

    counts: tuple[str, ...]

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    def origin(self, name: str) -> Origin | None:
        return None

    def notation(self, labels: Labels) -> str:
        return f"counts({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        width = len(self.columns) - len(self.counts)
        sums: dict[tuple[Any, ...], list[int]] = {}
        for row, n in e(self.child).items():
            totals = sums.setdefault(row[:width], [0] * len(self.counts))
            for i, count in enumerate(row[width:]):
                totals[i] += count * n
        return Counter((*row, *totals) for row, totals in sums.items())

    def sql(self, w: Writer) -> exp.Query:
        return bags.summed(w.below(self.child, "q"), self.columns[: -len(self.counts)], self.counts)


@dataclass(frozen=True, eq=False)
class Repeat(Derived, Unary):
    """A signed bag of positive counts written out as a plain bag: each row as often as its count says."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns[:-1]

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    def origin(self, name: str) -> Origin | None:
        return None

    def notation(self, labels: Labels) -> str:
        return f"rows({labels.text(self.child)})"

    def evaluate(self, e: Evaluation) -> Bag:
        result: Bag = Counter()
        for (*row, count), n in e(self.child).items():
            if count < 0:
                raise ValueError(f"A bag cannot hold {count} copies of {tuple(row)}.")
            result[tuple(row)] += count * n
        return +result

    def sql(self, w: Writer) -> exp.Query:
        return w.written_out(w.below(self.child, "q"), self.columns)
