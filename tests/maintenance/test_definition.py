"""What a view's plan may not compare, whatever the tables hold."""

from __future__ import annotations

import pytest
from sqlglot import parse_one

from deferred.algebra.operators import Aggregate, Distinct, Filter, Scan
from deferred.algebra.plan import Plan
from deferred.errors import UnsupportedSQLError
from deferred.maintenance.definition import _refuse_uncomparable
from deferred.sql.bind import Bound

TYPES = {"c1": "int", "c2": "string", "c3": "string collate UTF8_LCASE", "n": "bigint"}
WORDS = Scan("words", ("a", "s", "t"), ("c1", "c2", "c3"))
COUNTED = (("n", parse_one("COUNT(*)")),)


def bound(plan: Plan) -> Bound:
    return Bound(plan=plan, names=plan.columns, types=TYPES, tables=("words",))


@pytest.mark.parametrize(
    "plan",
    [
        Aggregate(WORDS, ("c3",), COUNTED),
        Aggregate(WORDS, ("c1",), (("n", parse_one("MAX_BY(c1, c2 COLLATE UTF8_LCASE)", dialect="spark")),)),
        Distinct(WORDS),
    ],
)
def test_nothing_is_chosen_among_collated_texts(plan: Plan) -> None:
    """Of 'a' and 'A' Spark takes any: two computations of a group would not agree."""
    with pytest.raises(UnsupportedSQLError, match="over collated texts"):
        _refuse_uncomparable(bound(plan))


def test_collated_texts_are_compared_and_shown() -> None:
    for plan in (Filter(WORDS, parse_one("c3 = 'A'")), Aggregate(WORDS, ("c1", "c2"), COUNTED)):
        _refuse_uncomparable(bound(plan))
