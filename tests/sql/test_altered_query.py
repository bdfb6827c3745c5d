"""One text for two queries, in which it is marked what only one of them has."""

from __future__ import annotations

import re

import pytest

from deferred.sql.altered_query import marked

MARKED: dict[tuple[str, str], str | None] = {
    ("SELECT a FROM t WHERE b > 1", "SELECT a FROM t"): "SELECT a FROM t WHERE [TRUE for b > 1]",
    ("SELECT a FROM t WHERE a > 1 AND b", "SELECT a FROM t WHERE b AND c"): "SELECT a FROM t WHERE b AND [c for a > 1]",
    (
        "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE a > 1) AS x GROUP BY s",
        "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE a > 2) AS x GROUP BY s",
    ): "SELECT s, COUNT(*) FROM (SELECT * FROM t WHERE [a > 2 for a > 1]) AS x GROUP BY s",
    (
        "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE c = 1)",
        "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE c = 2)",
    ): "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE [c = 2 for c = 1])",
    (
        "WITH x AS (SELECT a FROM t) SELECT a FROM x",
        "WITH x AS (SELECT a FROM t) SELECT a FROM x UNION ALL SELECT b FROM u",
    ): "WITH x AS (SELECT a FROM t) SELECT a FROM x UNION ALL SELECT b FROM u WHERE [TRUE for FALSE]",
    (
        "SELECT a FROM t UNION SELECT b FROM u UNION SELECT c FROM v",
        "SELECT b FROM u UNION SELECT c FROM v",
    ): "SELECT a AS `b` FROM t WHERE [FALSE for TRUE] UNION SELECT b FROM u UNION SELECT c FROM v",
    (
        "SELECT a FROM t",
        "SELECT a FROM t UNION ALL SELECT MAX(b) AS m FROM u",
    ): "SELECT a FROM t UNION ALL SELECT * FROM (SELECT MAX(b) AS m FROM u) AS _deferred_branch WHERE [TRUE for FALSE]",
    ("SELECT a FROM t", "SELECT a FROM t"): None,
    ("SELECT a FROM t WHERE b > 1", "SELECT c FROM t WHERE b > 2"): None,
    ("SELECT a FROM t ORDER BY a LIMIT 1", "SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY a LIMIT 1"): None,
    ("SELECT t.a FROM t, u WHERE t.a = u.a", "SELECT t.a FROM t, u WHERE t.a = u.b"): None,
}


@pytest.mark.parametrize(("old", "new"), MARKED)
def test_conditions_and_branches_that_only_one_query_has(old: str, new: str) -> None:
    found = marked(old, new)
    mark = r"CASE WHEN (.*?) THEN TRUE WHEN (.*?) THEN FALSE ELSE '_deferred_edit' END"
    assert (None if found is None else re.sub(mark, r"[\1 for \2]", found)) == MARKED[old, new]
