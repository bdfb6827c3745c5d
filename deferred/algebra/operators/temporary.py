"""The results of earlier steps, and the rows of support tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra import bags
from deferred.algebra.nodes import Derived, Leaf
from deferred.algebra.plan import Origin, Plan, Writer

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.notation import Labels
    from deferred.algebra.paper.evaluate import Bag, Evaluation


@dataclass(frozen=True, eq=False)
class Temporary(Derived, Leaf):
    """A temporary result that an earlier step of the program has computed."""

    name: str
    ids: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    def origin(self, name: str) -> Origin | None:
        return self, name

    def delta(self, d: Differentiator) -> Plan | None:
        """Nothing: it stands still while a recursion over it is computed."""
        return None

    def notation(self, labels: Labels) -> str:
        return self.name

    def evaluate(self, e: Evaluation) -> Bag:
        return e.temporaries[self.name]

    def sql(self, w: Writer) -> exp.Query:
        return bags.select(map(bags.column, self.columns), w.temporary(self.name))


@dataclass(frozen=True, eq=False)
class Stored(Derived, Leaf):
    """The rows of a support table, as they are at s_i; `keys` identify its rows, none where it moves as a whole."""

    name: str
    ids: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ids

    def origin(self, name: str) -> Origin | None:
        return None

    def notation(self, labels: Labels) -> str:
        return self.name

    def evaluate(self, e: Evaluation) -> Bag:
        return e.picked(e.supports[self.name], self.ids)

    def sql(self, w: Writer) -> exp.Query:
        rows = w.fetched(self, None) or w.stored(self.name)
        return w.newest(self, bags.select(map(bags.column, w.held(self)), rows))
