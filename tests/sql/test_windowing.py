"""Windows whose value depends on the order of rows: the form in which both states of a partition give the same value.

A view stores values, so a window over the same rows must have the same value each time: over rows in one order, or
folded over sorted values. Whether the values are right is seen on DuckDB and on Spark elsewhere.
"""

from __future__ import annotations

import pytest

from deferred.algebra.operators import Scan, Window
from deferred.errors import NondeterministicSQLError, UnknownObjectError, UnsupportedSQLError
from deferred.sql.bind import bind
from deferred.sql.dialect import text
from deferred.sql.types import Types

SCHEMA = (("g", "int"), ("o", "int"), ("x", "double"), ("n", "int"))
WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"

# the window as it is written: the windows that the plan computes for it
FORMS: dict[str, list[str]] = {
    # floating point: over all rows in one order, whatever the query says of it
    "SUM(x) OVER (PARTITION BY g)": [f"SUM(x) OVER (PARTITION BY g ORDER BY x {WHOLE})"],
    "AVG(x) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)": [
        f"AVG(x) OVER (PARTITION BY g ORDER BY o {WHOLE})"
    ],
    "SUM(x) OVER (PARTITION BY g ORDER BY o ROWS 1 PRECEDING)": [
        "SUM(x) OVER (PARTITION BY g ORDER BY o ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    ],
    "SUM(x) FILTER (WHERE n > 0) OVER (PARTITION BY g)": [
        f"SUM(x) FILTER(WHERE n > 0) OVER (PARTITION BY g ORDER BY x {WHOLE})"
    ],
    # up to the peers of a row: the value at the last of them
    "SUM(x) OVER (PARTITION BY g ORDER BY o)": [
        "MAX_BY(computed, computed) OVER (PARTITION BY g, o)",
        f"SUM(x) OVER (PARTITION BY g ORDER BY o {SO_FAR})",
        "ROW_NUMBER() OVER (PARTITION BY g ORDER BY o)",
    ],
    # any other range: folded over sorted values
    "SUM(x) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)": [
        "COUNT(x) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "COLLECT_LIST(CAST(x AS DOUBLE)) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)",
    ],
    # exact numbers stay as they are, and so do functions that show no order
    "SUM(n) OVER (PARTITION BY g ORDER BY o)": ["SUM(n) OVER (PARTITION BY g ORDER BY o)"],
    "MEDIAN(x) OVER (PARTITION BY g)": ["MEDIAN(x) OVER (PARTITION BY g)"],
    "RANK() OVER (PARTITION BY n + 1 ORDER BY o)": ["RANK() OVER (PARTITION BY computed ORDER BY o)"],
    # values of single rows
    "LAST_VALUE(x) OVER (PARTITION BY g ORDER BY o)": [f"LAST_VALUE(x) OVER (PARTITION BY g, o ORDER BY o {WHOLE})"],
    "LAST_VALUE(x) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)": [
        f"LAST_VALUE(x) OVER (PARTITION BY g ORDER BY o {WHOLE})"
    ],
    "LAST_VALUE(x) OVER (PARTITION BY g)": [f"LAST_VALUE(x) OVER (PARTITION BY g {WHOLE})"],
    "LAST_VALUE(x) IGNORE NULLS OVER (PARTITION BY g ORDER BY o)": [
        f"LAST_VALUE(x) IGNORE NULLS OVER (PARTITION BY g ORDER BY o {SO_FAR})",
        f"LAST_VALUE(x) IGNORE NULLS OVER (PARTITION BY g, o ORDER BY o {WHOLE})",
    ],
    "FIRST_VALUE(x) IGNORE NULLS OVER (PARTITION BY g ORDER BY o)": [
        f"FIRST_VALUE(x) IGNORE NULLS OVER (PARTITION BY g ORDER BY o {WHOLE})",
        "COUNT(x) OVER (PARTITION BY g ORDER BY o)",
    ],
    "NTH_VALUE(x, 2) OVER (PARTITION BY g ORDER BY o)": [
        f"NTH_VALUE(x, 2) OVER (PARTITION BY g ORDER BY o {WHOLE})",
        "COUNT(*) OVER (PARTITION BY g ORDER BY o)",
    ],
}


def engine(sql: str) -> list[tuple[str, str]]:
    """An engine for which x is the only column of floating point, and everything made of it."""
    return [("t0", "double" if "double" in sql.lower() else "int")]


def windows(window: str) -> list[str]:
    """The windows of a plan, under the names that the columns have in the table."""
    plan = bind(f"SELECT {window} AS v FROM w", lambda path: ("w", SCHEMA), Types(engine)).plan
    (scan,) = (node for node in plan.walk() if isinstance(node, Scan))
    names = dict(zip(scan.ids, scan.names, strict=True))
    found = []
    for node in plan.walk():
        for _, function in node.functions if isinstance(node, Window) else ():
            shown = function.copy()
            for column in list(shown.find_all(type(shown.args["partition_by"][0]))):
                column.this.set("this", names.get(column.name, "computed"))
                column.this.set("quoted", False)
            found.append(text(shown))
    return found


@pytest.mark.parametrize("window", FORMS)
def test_the_form_of_a_window(window: str) -> None:
    assert windows(window) == FORMS[window]


@pytest.mark.parametrize(
    ("window", "error", "words"),
    [
        (
            "LAST_VALUE(x) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)",
            NondeterministicSQLError,
            "leaves equal at the edge of the frame. Write the frame with ROWS.",
        ),
        ("SUM(x) OVER nowhere", UnknownObjectError, "Define it with WINDOW nowhere AS"),
        ("COLLECT_LIST(x) OVER (PARTITION BY g)", UnsupportedSQLError, "The window function"),
    ],
)
def test_windows_that_are_refused(window: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        windows(window)
