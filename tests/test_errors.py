"""Errors: every class has a code, a reason, a remedy and its section in docs/ERRORS.md; SQL is shown with a caret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deferred import errors, terminal
from deferred.algebra.types import Columns
from deferred.errors import DeferredError, InvalidSQLError, Place, UnknownObjectError, all_errors
from deferred.sql.bind import bind
from deferred.sql.types import Types
from deferred.sql.viewfile import parse_view
from tools import errors_doc

ROOT = Path(__file__).parents[1]

ELSEWHERE = {
    errors.DeferredError: "tests/test_errors.py",
    errors.EndlessRecursionError: "tests/algebra/operators/test_recursion.py",
    errors.InvariantError: "tests/test_cli.py",
    errors.TransactionError: "tests/engine/test_transactions.py",
    errors.PromiseBrokenError: "tests/engine/test_self_maintained.py",
    errors.LeaseHeldError: "tests/engine/test_exactly_once.py",
    errors.LeaseLostError: "tests/log/test_lease.py",
    errors.SparkFailure: "tests/log/test_sources.py",
}
"""Errors that a command without Spark, alone, does not meet, and the tests that raise them."""


def test_the_page_is_current() -> None:
    """Made again, with every example run; `make errors` writes it."""
    made = errors_doc.page()
    assert errors_doc.PAGE.read_text(encoding="utf-8") == made
    for error, example in errors_doc.EXAMPLES.items():
        section = made.split(f"## {error.code} {error.__name__}\n")[1].split("\n## ")[0]
        assert f"deferred: [{error.code}] " in section, f"{example.commands} raises another error"


def test_every_error_is_complete() -> None:
    found = all_errors()
    codes = [error.code for error in found]
    assert len(set(codes)) == len(codes)
    for error in found:
        assert {"code", "why", "remedy"} <= vars(error).keys(), f"{error.__name__} says this itself"
        assert error.__doc__
        assert (error in errors_doc.EXAMPLES) != (error in ELSEWHERE), f"an example of {error.__name__}"
    for error, file in ELSEWHERE.items():
        assert error.__name__ in (ROOT / file).read_text(encoding="utf-8"), f"{file} raises {error.__name__}"


def catalog(path: tuple[str, ...]) -> tuple[str, Columns]:
    if path != ("t",):
        raise UnknownObjectError(f"There is no table {path[-1]}.")
    return "t", (("a", "int"), ("b", "int"))


PLACES = {
    "SELECT a\nFROM t WHERE wrong = 1": (2, "wrong"),
    "SELECT x.wrong FROM t x": (1, "x.wrong"),
    "SELECT x.* FROM t": (1, "x.*"),
    "SELECT a FROM t JOIN u ON TRUE": (1, "u"),
    "SELECT a FROM t x, t y": (1, "a"),
    "SELECT a, b FROM t GROUP BY a": (1, "b"),
    "SELECT a FROM t GROUP BY 7": (1, "7"),
    "SELECT a FROM t WHERE a > (SELECT\n  current_date( ))": (2, "current_date( )"),
    "SELECT FIRST(a + 1) AS f FROM t": (1, "FIRST(a + 1)"),
    "SELECT a FROM t LIMIT 3": (1, "3"),
    "SELECT a FROM t UNION SELECT a, b FROM t": (1, "a, b FROM t"),
    "SELECT reflect('x', 'y') AS r FROM t": (1, "reflect('x', 'y')"),
    "SELECT a FROM t WHERE a = = 2": (1, "="),
    "SELECT a,\n  b FORM t u": (2, "t"),
    "SELECT 'it''s' AS s, wrong FROM t": (1, "wrong"),
}


@pytest.mark.parametrize("sql", PLACES)
def test_the_place_of_a_mistake(sql: str) -> None:
    with pytest.raises(DeferredError) as raised:
        bind(sql, catalog, Types(lambda _: [("x", "int")]))
    place = raised.value.place
    assert place is not None
    assert (place.line, place.text) == PLACES[sql]
    line, carets = str(place).splitlines()
    assert line[carets.index("^") : carets.rindex("^") + 1] == place.text.splitlines()[0]


def test_a_long_line_is_cut_around_the_mistake() -> None:
    sql = "SELECT " + "a + " * 100 + "wrong FROM t"
    place = Place(sql, sql.index("wrong"), sql.index("wrong") + 4)
    line, carets = str(place).splitlines()
    assert len(line) < 120
    assert line[carets.index("^") : carets.rindex("^") + 1] == "wrong"


def test_a_view_file_shows_its_own_line() -> None:
    with pytest.raises(InvalidSQLError) as raised:
        parse_view("-- sales\nCREATE MATERIALIZED VIEW v\nAS SELECT a FROM t WHERE a = = 1")
    assert raised.value.place is not None
    assert (raised.value.place.line, raised.value.place.column) == (3, 30)
    with pytest.raises(DeferredError) as raised_before:
        parse_view("CREATE MATERIALIZED TABLE v AS SELECT 1")
    assert raised_before.value.place is not None
    assert raised_before.value.place.text == "TABLE"


def test_an_error_as_a_document() -> None:
    sql = "SELECT token=abc"
    document = InvalidSQLError("No token=abc here.", at=Place(sql, 7, 15)).to_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["code"], document["where"]["line"], document["where"]["column"]) == ("D301", 1, 8)
    assert "abc" not in json.dumps(document)
    assert DeferredError("x").to_dict()["where"] is None


def test_an_error_for_people() -> None:
    shown = terminal.explained(UnknownObjectError("No x.", at=Place("SELECT x", 7, 7)))
    assert shown == "[D201] No x.\n  line 1 | SELECT x\n         |        ^"


def test_the_terminal_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    for error, more in (
        (UnknownObjectError("No x."), [f"  Why: {UnknownObjectError.why}"]),
        (DeferredError("No."), []),
    ):
        with pytest.raises(SystemExit):
            terminal.fail(error, as_json=False)
        assert capsys.readouterr().err.splitlines() == [f"deferred: [{error.code}] {error}", *more]
