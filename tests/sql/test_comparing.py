"""Changed queries that must not be taken for a part of the old rows, each with the reason."""

from __future__ import annotations

import pytest

from deferred.sql.comparing import Difference, OfView, compared
from deferred.sql.dialect import parse_query

RECOMPUTED = {
    "the row of no groups stays": ("SELECT COUNT(*) AS n FROM t", "SELECT COUNT(*) AS n FROM t WHERE FALSE"),
    "the row of all groups stays": (
        "SELECT a, COUNT(*) AS n FROM t GROUP BY ROLLUP (a)",
        "SELECT a, COUNT(*) AS n FROM t WHERE a > 1 GROUP BY ROLLUP (a)",
    ),
    "the condition is not on whole groups": (
        "SELECT a, MAX(b) AS n FROM t GROUP BY a",
        "SELECT a, MAX(b) AS n FROM t WHERE b > 1 GROUP BY a",
    ),
    "an ordinal means another column": (
        "SELECT a, b, COUNT(*) AS n FROM t GROUP BY 1, 2",
        "SELECT b, a, COUNT(*) AS n FROM t GROUP BY 1, 2",
    ),
    "fewer columns have more duplicates": ("SELECT DISTINCT a, b FROM t", "SELECT DISTINCT a FROM t"),
    "a limit chooses among other rows": (
        "SELECT a, b FROM t ORDER BY a LIMIT 1",
        "SELECT a, b FROM t WHERE b = 1 ORDER BY a LIMIT 1",
    ),
    "a window sees other rows": (
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t",
        "SELECT a, RANK() OVER (ORDER BY a) AS n FROM t WHERE a > 1",
    ),
    "names differ in case inside a text": ("SELECT a FROM t WHERE a = 'X'", "SELECT b FROM t WHERE a = 'x'"),
}


@pytest.mark.parametrize("reason", RECOMPUTED)
def test_it_is_recomputed(reason: str) -> None:
    old, new = RECOMPUTED[reason]
    assert compared(old, new, [item.alias_or_name for item in parse_query(old).expressions]) is None


def test_what_follows_from_the_old_rows() -> None:
    grouped = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
    found = compared(grouped, f"{grouped} HAVING COUNT(*) > 1", ["a", "n"])
    assert isinstance(found, OfView)
    assert found.condition is not None
    assert found.condition.sql() == '"n" > 1'
    added = compared("SELECT a FROM t", "SELECT a FROM t UNION ALL SELECT b FROM u", ["a"])
    assert added == Difference(("SELECT b FROM u",), ())
