"""What would make a view cheaper to maintain: one function per kind of advice, each of which looks at the view's plan.

Advice is about cost alone: every form that it suggests shows the same rows, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from deferred.algebra.blocks import distinct_block_of
from deferred.algebra.operators import Aggregate, Distinct, Join, OuterJoin, Project, Scan, UnionAll, Window
from deferred.algebra.operators.scan import listed_tables, scans_of, tables_of
from deferred.algebra.plan import Plan
from deferred.algebra.strategy import Keeping, Recomputed
from deferred.metadata import TableRecord, ViewRecord

LARGE = 100_000
"""Rows of a table from which on it matters how they lie in files."""


@dataclass(frozen=True)
class Subject:
    """A view as advice sees it: its plan, the types of the plan's columns, its tables and how many rows they have."""

    view: ViewRecord
    plan: Plan
    types: Mapping[str, str]
    tables: Mapping[str, TableRecord]
    rows: Mapping[str, int | None]

    def base_column(self, name: str) -> tuple[str, str] | None:
        """The table and column that a column of the plan is, if it is one as it stands."""
        for node in self.plan.walk():
            if isinstance(node, Scan) and name in node.ids:
                return node.table, node.names[node.ids.index(name)]
            if isinstance(node, Project):
                value = dict(node.outputs).get(name)
                if isinstance(value, exp.Column) and value.name != name:
                    return self.base_column(value.name)
        return None


def advice(subject: Subject) -> tuple[str, ...]:
    """Returns what would make the view cheaper, the most important first; nothing where nothing is known."""
    return tuple(dict.fromkeys(said for kind in ADVICE for said in kind(subject)))


def _policy(subject: Subject) -> Iterator[str]:
    if subject.view.options.always_recomputes:
        yield "Another policy: refresh_policy = 'full' recomputes the view each time; 'auto' follows the changes."


def _form(subject: Subject) -> Iterator[str]:
    """Another form of the query, for what reads its whole input at every change."""
    for node in subject.plan.walk():
        if not isinstance(node.strategy, Recomputed):
            continue
        if isinstance(node, Window):
            yield "Another form: a window without PARTITION BY reads everything at every change; add PARTITION BY."
        else:
            yield (
                f"Another form: {node.called} has no key, so every change reads its whole input; give it a "
                f"GROUP BY, a PARTITION BY or a join by equality."
            )


def _decimals(subject: Subject) -> Iterator[str]:
    """Floating-point sums cannot be taken back exactly; those of decimals and integers are counted."""
    for node in subject.plan.walk():
        if not isinstance(node, Aggregate) or isinstance(node.strategy, Keeping):
            continue
        for call in node.expressions:
            floats = [c.name for c in call.find_all(exp.Column) if subject.types.get(c.name) in ("double", "float")]
            named = sorted({base[1] for name in floats if (base := subject.base_column(name)) is not None})
            if named:
                yield (
                    f"Another form: aggregates of floating-point numbers ({', '.join(named)}) read all rows of a "
                    f"touched group again; CAST(… AS DECIMAL(p, s)) lets sums and averages be counted."
                )


def _union(subject: Subject) -> Iterator[str]:
    for node in subject.plan.walk():
        if isinstance(node, Distinct) and isinstance(node.children[0], UnionAll):
            yield (
                "Another form: UNION looks up every changed row in all its branches; if the branches cannot have a row "
                "in common, nor one of them twice, UNION ALL shows the same and only reads the changes."
            )


def _tree(subject: Subject) -> Iterator[str]:
    """DISTINCT over a join can keep which rows are good (Shmueli, Itai 1984)."""
    for node in subject.plan.walk():
        if not isinstance(node, Distinct) or isinstance(node.strategy, Keeping):
            continue
        large = [table for table in tables_of(node) if (subject.rows.get(table) or 0) >= LARGE]
        if large and len(distinct_block_of(node.child).inputs) > 1:
            yield (
                f"Kept counts: DISTINCT over the join of {listed_tables(node)} reads the join again for every changed "
                f"row; maintain = 'tree' keeps which rows find partners, and pays where most find none."
            )


def _clustering(subject: Subject) -> Iterator[str]:
    """Rules that look rows up by some columns skip files when the rows lie together by them."""
    wanted: dict[str, list[str]] = {}
    for node in subject.plan.walk():
        if isinstance(node.strategy, Keeping):
            continue
        for base in filter(None, map(subject.base_column, node.looked_up_by)):
            wanted.setdefault(base[0], []).append(base[1])
    for table, columns in wanted.items():
        rows = subject.rows.get(table)
        if rows is not None and rows >= LARGE:
            by = ", ".join(dict.fromkeys(columns))
            yield (
                f"Clustering: changes look up rows of {table} ({rows:,} rows) by {by}; ALTER TABLE … CLUSTER BY ({by}) "
                f"and OPTIMIZE let them skip the files without those values."
            )


def _keys(subject: Subject) -> Iterator[str]:
    """With keys and references, a view can keep what it needs beside itself (Quass et al. 1996)."""
    joined = {
        scan.table for node in subject.plan.walk() if isinstance(node, (Join, OuterJoin)) for scan in scans_of(node)
    }
    without = sorted(name for name in joined if name in subject.tables and not subject.tables[name].key)
    if without:
        listed = ", ".join(without)
        yield (
            f"A key: {listed} {'has' if len(without) == 1 else 'have'} no declared key. With `track --key` and "
            f"`--references`, maintain = 'self' can keep what a join needs, and a propagate reads no base table."
        )


ADVICE: tuple[Callable[[Subject], Iterator[str]], ...] = (_policy, _form, _decimals, _union, _tree, _keys, _clustering)
