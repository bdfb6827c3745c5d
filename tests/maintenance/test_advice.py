"""What is advised to make a view cheaper: from its plan and the number of rows of its tables, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deferred.maintenance.advice import LARGE, Subject, advice
from deferred.options import ViewOptions
from tests.fuzz.duck import Database

SCHEMAS = {"t": (("a", "int"), ("b", "int"), ("x", "double")), "u": (("b", "int"), ("c", "int"))}

SAID = {
    # query, maintain, rows: how what is said begins
    ("SELECT DISTINCT a FROM t JOIN u ON t.b = u.b", "auto", LARGE): {"Kept counts", "Clustering"},
    ("SELECT DISTINCT a FROM t JOIN u ON t.b = u.b", "tree", LARGE): {"Clustering"},
    ("SELECT DISTINCT a FROM t JOIN u ON t.b = u.b", "auto", 10): set(),
    ("SELECT DISTINCT a FROM t", "auto", LARGE): {"Clustering"},
    ("SELECT a FROM t UNION SELECT b FROM u", "auto", 10): {"Another form"},
    ("SELECT a FROM t WHERE a > 1", "auto", LARGE): set(),
}


@pytest.mark.parametrize(("query", "maintain", "rows"), SAID)
def test_what_is_said(query: str, maintain: str, rows: int) -> None:
    bound = Database(SCHEMAS).bind(query, maintain)
    view: Any = SimpleNamespace(options=ViewOptions(maintain=maintain))
    subject = Subject(view, bound.plan, bound.types, {}, dict.fromkeys(SCHEMAS, rows))
    assert {said.partition(":")[0] for said in advice(subject)} == SAID[query, maintain, rows]
