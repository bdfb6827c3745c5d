"""Types are asked of the engine once, as text that does not change; what it refuses for another reason is passed on."""

from __future__ import annotations

import pytest

from deferred.errors import InvalidSQLError
from deferred.sql.dialect import parse_scalar
from deferred.sql.types import Types


class Engine:
    """Answers every question in the same way, and remembers the questions."""

    def __init__(self, answer: list[tuple[str, str]] | InvalidSQLError) -> None:
        self.answer, self.asked = answer, list[str]()

    def __call__(self, sql: str) -> list[tuple[str, str]]:
        self.asked.append(sql)
        if isinstance(self.answer, InvalidSQLError):
            raise self.answer
        return self.answer


def test_the_same_is_asked_once_and_never_of_a_view_that_remembers() -> None:
    engine = Engine([("t0", "bigint")])
    types = Types(engine)
    for _ in range(2):
        assert types.of([parse_scalar("SUM(a)")], {"a": "int", "b": "int"}, keys=["b"]) == ["bigint"]
    assert engine.asked == [
        "SELECT SUM(a) AS `t0` FROM (SELECT CAST(NULL AS int) AS `a`, CAST(NULL AS int) AS `b`) GROUP BY `b`"
    ]
    again = Engine(InvalidSQLError("must not be asked"))
    assert Types(again, types.known).of([parse_scalar("SUM(a)")], {"a": "int", "b": "int"}, keys=["b"]) == ["bigint"]
    assert again.asked == []


def test_nothing_is_asked_about_nothing() -> None:
    assert Types(Engine(InvalidSQLError("must not be asked"))).of([], {}) == []


@pytest.mark.parametrize(
    ("answer", "deterministic"),
    [([("one", "int")], True), (InvalidSQLError("[INVALID_NON_DETERMINISTIC_EXPRESSIONS] …"), False)],
)
def test_an_expression_is_deterministic_where_a_join_may_have_it(
    answer: list[tuple[str, str]] | InvalidSQLError, deterministic: bool
) -> None:
    engine = Engine(answer)
    assert Types(engine).deterministic(parse_scalar("f(a)"), {"a": "int"}) is deterministic
    (asked,) = engine.asked
    assert "JOIN" in asked
    assert "f(a) IS NULL" in asked


def test_another_refusal_is_not_taken_for_one() -> None:
    with pytest.raises(InvalidSQLError, match="no function f"):
        Types(Engine(InvalidSQLError("There is no function f."))).deterministic(parse_scalar("f(a)"), {"a": "int"})


@pytest.mark.parametrize(
    ("left", "right", "common", "asked"),
    [
        ("int", "int", "int", 0),
        ("int", "void", "int", 0),
        ("void", "string", "string", 0),
        ("int", "bigint", "bigint", 1),
    ],
)
def test_the_common_type_of_two_columns(left: str, right: str, common: str, asked: int) -> None:
    engine = Engine([("t", "bigint")])
    assert Types(engine).common(left, right) == common
    assert len(engine.asked) == asked


@pytest.mark.parametrize(("type_", "fails"), [("string", False), ("bigint", True)])
def test_ansi_mode_shows_in_the_type_of_a_number_or_a_text(type_: str, fails: bool) -> None:
    assert Types(Engine([("t", type_)])).fails_on_overflow is fails
