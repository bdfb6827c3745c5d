"""Rows that refer to nothing so far: remembered, so that a row which comes later than what refers to it is noticed.

Of a referenced table only the rows are at hand that can enter the view. A row that refers to none of these may refer to
one outside, as most do, or into nothing. Only the latter can be met by a new key, and rule 4.1 would miss it. So their
foreign keys are kept: a new key that is among them was missing when the rows came, and the reference does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from deferred.algebra.bags import COUNT, bigint
from deferred.algebra.guards import rows_of_table, scan_below, traced
from deferred.algebra.nodes import Barrier, QueryLeaf
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.outer_join import ANTI, OuterJoin
from deferred.algebra.operators.project import Project, pick, signed
from deferred.algebra.operators.promised_join import Link, PromisedJoin
from deferred.algebra.operators.referring import part
from deferred.algebra.operators.signed import Net
from deferred.algebra.operators.temporary import Stored
from deferred.algebra.plan import Conjunction, Demands, Keys, Origin, Plan, Writer
from deferred.algebra.program import LATE, Guard, Upkeep
from deferred.algebra.scalar import Scalar, all_true, column
from deferred.algebra.strategy import LINEAR, Keeping, Strategy, SupportTables
from deferred.algebra.support_tables import looked_up, moved, without_keys_of

if TYPE_CHECKING:
    from deferred.algebra.delta import Differentiator
    from deferred.algebra.equations.figure2 import Figure2, Pair
    from deferred.algebra.notation import Labels
    from deferred.algebra.operators.scan import Scan
    from deferred.algebra.paper.evaluate import Bag, Evaluation
    from deferred.algebra.relevance.conditions import Conditions
    from deferred.algebra.sharing import Sharing
    from deferred.algebra.unnest import Bindings, Unnesting


@dataclass(frozen=True)
class UnmetKeys(Keeping):
    """Foreign keys in a support table: those that were not found, of rows that came since the table was filled.

    When it is filled, the base tables are at hand: then it has those that refer into nothing, which should be none.
    """

    name: ClassVar[str] = "references not found"
    is_exact: ClassVar[bool] = False
    support: str

    def contents(self, node: Unmet) -> Plan:
        return Net(signed(node.missing))

    def carried_over(self, node: Unmet, old: Plan, kept: Keeping, sharing: Sharing) -> Plan | None:
        return None

    def past(self, node: Unmet, keys: Keys | None) -> Plan:
        return pick(looked_up(node.stored, keys), node.columns)

    def present(self, node: Unmet, d: Differentiator, keys: Keys | None) -> Plan:
        return pick(moved(node.stored, d.supports.get(self.support), keys), node.columns)

    def reads_again(self, node: Unmet) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Unmet(QueryLeaf):
    """The foreign keys along one link of a join that refer into nothing, and those that may.

    `missing` are the former by the base tables. It is no input: no change of it is computed.
    """

    missing: Plan
    kept: UnmetKeys
    link: Link

    called = "references into nothing"
    row_by_row = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.missing.columns

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self

    def delta(self, d: Differentiator) -> Plan | None:
        """None: no rule reads how it changes."""
        return None

    def remember(self, join: PromisedJoin, d: Differentiator) -> None:
        """Notice a key that comes after rows which refer to it, and enter the keys that are not found at s_c.

        A key that the log deletes was there: rows that referred to it did not refer into nothing.
        """
        referring, referred = join.inputs[self.link.referring], join.inputs[self.link.referred]
        mine, theirs = rows_of_table(referring), rows_of_table(referred)
        log, change = d.delta(scan_below(theirs)), d.delta(mine)
        if log is None and change is None:
            return
        nothing = Filter(self.stored, exp.false())
        rows: Plan = nothing
        gone = pick(nothing, self.columns)
        by_key: Plan | None = None
        if log is not None:
            keys = [(c, column(traced(theirs, key))) for c, (_, key) in self._pairs]
            by_key = d.shared(Project(log, (*keys, (COUNT, column(COUNT)))))
            arrived = d.shared(part(Net(by_key), exp.GT))
            late = pick(looked_up(self.stored, Keys.same(arrived, self.columns)), self.columns)
            scan = scan_below(mine)
            names = dict(zip(scan.ids, scan.names, strict=True))
            fks = tuple(names[traced(mine, fk)] for _, (fk, _) in self._pairs)
            d.guards.append(Guard(LATE, scan.table, fks, late, scan_below(theirs).table))
            were_there = d.shared(part(by_key, exp.LT))
            gone = pick(looked_up(self.stored, Keys.same(were_there, self.columns)), self.columns)
        if change is not None:
            missing = self._not_found(d, change, referred)
            if by_key is not None:
                missing = without_keys_of(missing, part(by_key, exp.GT), self.columns)
            rows = d.shared(Project(missing, (*((c, column(c)) for c in self.columns), (COUNT, bigint(1)))))
        d.supports[self.kept.support] = Upkeep(rows, gone, self.columns)

    def _not_found(self, d: Differentiator, change: Plan, referred: Plan) -> Plan:
        """The foreign keys of new rows that no row at hand has."""
        outputs = [(c, column(fk)) for c, (fk, _) in self._pairs]
        new = part(Net(Project(change, (*outputs, (COUNT, column(COUNT))))), exp.GT)
        known = all_true(exp.Not(this=exp.Is(this=column(c), expression=exp.Null())) for c in self.columns)
        new = d.shared(Filter(new, known))
        there = referred.restricted(Keys.of(new, ((key, c) for c, (_, key) in self._pairs)))
        found = all_true(exp.EQ(this=column(c), expression=column(key)) for c, (_, key) in self._pairs)
        return OuterJoin(new, there, ANTI, found)

    @property
    def _pairs(self) -> list[tuple[str, tuple[str, str]]]:
        return list(zip(self.columns, self.link.on, strict=True))

    @property
    def strategy(self) -> Strategy:
        return self.kept

    def reads(self, labels: Labels) -> str:
        return "foreign keys of new rows that are not found; a row with such a key would come too late"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("references into nothing")

    def known(self, c: Conditions) -> Conjunction:
        return ()

    def figure2(self, f: Figure2) -> Pair:
        return f.constant(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return self.kept.support

    def evaluate(self, e: Evaluation) -> Bag:
        return e(self.missing)

    def sql(self, w: Writer) -> exp.Query:
        return w.query(self.missing)

    @property
    def stored(self) -> Stored:
        return Stored(self.kept.support, (*self.columns, COUNT), self.columns)


@dataclass(frozen=True, eq=False)
class Watched(Barrier):
    """A join along references, with what is remembered of those that were not found."""

    child: PromisedJoin
    unmet: tuple[Unmet, ...]

    called = "a join along references"
    row_by_row = False
    in_recursion = True
    one_row = False
    looked_up_by = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child, *self.unmet)

    def with_children(self, children: Sequence[Plan]) -> Plan:
        """The same over other children; over rows that are no such join any more, nothing is remembered."""
        child, *others = children
        unmet = tuple(each for each in others if isinstance(each, Unmet))
        return Watched(child, unmet) if isinstance(child, PromisedJoin) else child

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        return ()

    @property
    def unique_key(self) -> tuple[str, ...] | None:
        return self.child.unique_key

    def origin(self, name: str) -> Origin | None:
        return self.child.origin(name)

    def needs(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed, *(frozenset(each.columns) for each in self.unmet))

    def pruned(self, children: Sequence[Plan], needed: frozenset[str]) -> Plan:
        return self.with_children(children)

    def delta(self, d: Differentiator) -> Plan | None:
        """Δ of the join; what was not found is remembered beside it."""
        change = d.delta(self.child)
        for each in self.unmet:
            each.remember(self.child, d)
        return change

    def restricted(self, keys: Keys) -> Plan:
        return self.child.restricted(keys)

    @property
    def strategy(self) -> Strategy:
        return LINEAR

    def supported(self, tables: SupportTables) -> Plan:
        return self

    def reads(self, labels: Labels) -> str:
        return "the changed rows of the join"

    def unnested(self, u: Unnesting) -> tuple[Plan, Bindings]:
        raise u.unsupported("auxiliary tables")

    def demanded(self, asked: Demands, c: Conditions) -> Sequence[Demands]:
        return [asked, *((),) * len(self.unmet)]

    def known(self, c: Conditions) -> Conjunction:
        return c.facts_of(self.child)

    @property
    def watched(self) -> Sequence[Scan]:
        return ()

    def figure2(self, f: Figure2) -> Pair:
        return f.linear(self)

    def labelled(self, labels: Labels) -> Mapping[str, str]:
        return {}

    def notation(self, labels: Labels) -> str:
        return labels.text(self.child)

    def evaluate(self, e: Evaluation) -> Bag:
        return e(self.child)

    def sql(self, w: Writer) -> exp.Query:
        return w.query(self.child)
