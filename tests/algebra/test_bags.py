"""Signed bags as SQL: what is written out is read back as the same tree, whatever names and types there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlglot import exp, parse_one

from deferred.algebra import bags
from deferred.sql.dialect import ViewSQL, delta_table, text

COLUMNS = [("a", "int"), ("b c", "double"), ("d`e", "map<string, int>"), ("_count", "string collate UTF8_LCASE")]
NAMES = [name for name, _ in COLUMNS]
TABLE = delta_table("/tables/r", 3)
CHANGES = exp.to_table("changes")

BUILT: dict[str, Callable[[], exp.Expr]] = {
    "signed": lambda: bags.signed(TABLE, NAMES),
    "signed, deleted": lambda: bags.signed(TABLE, NAMES, -1),
    "negated": lambda: bags.negated(CHANGES, NAMES),
    "net": lambda: bags.net(CHANGES, COLUMNS),
    "net of no columns": lambda: bags.net(CHANGES, []),
    "difference": lambda: bags.difference(CHANGES, bags.signed(TABLE, NAMES), COLUMNS),
    "written out": lambda: bags.written_out(bags.net(CHANGES, COLUMNS), NAMES),
    "union all": lambda: bags.union_all([bags.signed(TABLE, NAMES)] * 3),
    "positive": lambda: bags.positive(CHANGES, NAMES),
    "negative": lambda: bags.negative(CHANGES, NAMES),
    "matching": lambda: bags.matching(TABLE, NAMES, CHANGES, COLUMNS),
    "unmatched": lambda: bags.unmatched(TABLE, NAMES, CHANGES, NAMES[:1]),
    "totals": lambda: bags.totals(CHANGES),
    "described": lambda: bags.described(bags.net(CHANGES, COLUMNS), COLUMNS),
    "insert into": lambda: bags.insert_into(delta_table("/tables/r"), NAMES, bags.written_out(CHANGES, NAMES)),
    "overwrite": lambda: bags.overwrite(delta_table("/tables/r"), NAMES, bags.written_out(CHANGES, NAMES)),
    "merge by key": lambda: bags.merge_by_key(
        delta_table("/tables/r"), NAMES, ["a"], NAMES[1:], bags.positive(CHANGES, NAMES), exp.to_table("gone")
    ),
    "merge by key, none gone": lambda: bags.merge_by_key(TABLE, NAMES, NAMES[:2], NAMES, CHANGES, None),
    "multiplicities": lambda: bags.multiplicities(TABLE, COLUMNS, CHANGES),
    "missing": lambda: bags.missing(exp.to_table("present")),
    "appended": lambda: bags.appended(CHANGES, NAMES, NAMES[:1], exp.to_table("gone"), 7),
    "appended, none gone": lambda: bags.appended(CHANGES, NAMES, NAMES[:1], None, 7),
    "newest": lambda: bags.newest(TABLE, NAMES, NAMES[:2]),
    "merge nothing": lambda: bags.merge_nothing(delta_table("/tables/r")),
    "replace where": lambda: bags.replace_where(delta_table("/tables/r"), NAMES, exp.true(), CHANGES),
    "changed rows": lambda: bags.changed_rows(TABLE, COLUMNS, exp.true(), CHANGES),
    "with changes": lambda: bags.with_changes(TABLE, COLUMNS, CHANGES),
    "merge by row": lambda: bags.merge_by_row(delta_table("/tables/r"), COLUMNS, CHANGES, exp.to_table("present")),
}


@pytest.mark.parametrize("name", BUILT)
def test_what_is_written_out_is_read_back_as_the_same_tree(name: str) -> None:
    built = BUILT[name]()
    assert _one_cast(parse_one(text(built), dialect=ViewSQL)) == _one_cast(built)


def _one_cast(tree: exp.Expr) -> exp.Expr:
    """sqlglot reads Spark's CAST as one that may fail, and writes both in the same way."""
    return tree.transform(
        lambda node: exp.Cast(this=node.this, to=node.args["to"]) if isinstance(node, exp.TryCast) else node
    )


def test_building_leaves_what_it_is_given_as_it_was() -> None:
    given = bags.signed(TABLE, NAMES)
    before = text(given)
    bags.union_all([given, given])
    bags.difference(given, given, COLUMNS)
    bags.insert_into(TABLE, NAMES, given)
    assert text(given) == before
