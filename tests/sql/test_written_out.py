"""What is written out parses back to the same tree, however the tree was put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from deferred.algebra.aggregates.registry import Call, lookup
from deferred.algebra.scalar import column, substitute
from deferred.errors import InvalidSQLError
from deferred.sql.dialect import BINDING, ViewSQL, parse_scalar, text
from deferred.sql.templates import fill

OPERATORS = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Like, exp.ILike, exp.RegexpLike, exp.And, exp.Or),
)
ESCAPE = exp.Literal.string("!")


def call(argument: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="f", expressions=[argument])


def field(of: exp.Expr) -> exp.Expr:
    """A field of a value; after a column or a number the dot would be part of its name."""
    return exp.Dot(
        this=call(of) if isinstance(of, (exp.Column, exp.Literal)) else of, expression=exp.to_identifier("x")
    )


SHAPES: list[Callable[[exp.Expr, exp.Expr, exp.Expr], exp.Expr]] = [
    *(lambda a, b, c, kind=kind: kind(this=a, expression=b) for kind in OPERATORS),
    lambda a, b, c: exp.Not(this=a),
    lambda a, b, c: exp.Neg(this=a),
    lambda a, b, c: exp.BitwiseNot(this=a),
    lambda a, b, c: exp.Is(this=a, expression=exp.Null()),
    lambda a, b, c: exp.Is(this=a, expression=exp.true()),
    lambda a, b, c: exp.Between(this=a, low=b, high=c),
    lambda a, b, c: exp.In(this=a, expressions=[b, c]),
    lambda a, b, c: exp.Escape(this=exp.Like(this=a, expression=b), expression=ESCAPE.copy()),
    lambda a, b, c: exp.Escape(this=exp.ILike(this=a, expression=b, negate=True), expression=ESCAPE.copy()),
    lambda a, b, c: exp.Bracket(this=a, expressions=[b]),
    lambda a, b, c: field(a),
    lambda a, b, c: exp.Collate(this=a, expression=exp.Var(this="UTF8_LCASE")),
    lambda a, b, c: exp.Case(this=a, ifs=[exp.If(this=b, true=c)]),
    lambda a, b, c: exp.TryCast(this=a, to=exp.DataType.build("INT")),
    lambda a, b, c: call(a),
]


def trees(parts: st.SearchStrategy[exp.Expr]) -> st.SearchStrategy[exp.Expr]:
    return st.builds(lambda shape, *of: shape(*(e.copy() for e in of)), st.sampled_from(SHAPES), parts, parts, parts)


LEAVES = st.sampled_from([exp.column(name, quoted=True) for name in "abc"] + [exp.Literal.number(1)])
EXPRESSIONS = st.recursive(LEAVES, trees, max_leaves=8)


def bare(tree: exp.Expr) -> object:
    """The shape of a tree without its parentheses, and without what the parser notes about the dialect."""
    if isinstance(tree, exp.Paren):
        return bare(tree.this)
    if isinstance(tree, exp.Column):
        return tree.name
    noted = ("safe", "typed", "quoted", "nested")
    parts = {k: v if isinstance(v, list) else [v] for k, v in tree.args.items() if k not in noted}
    shapes = {k: [bare(e) if isinstance(e, exp.Expr) else e for e in v if e] for k, v in parts.items()}
    return type(tree).__name__, {k: v for k, v in shapes.items() if v}


@given(EXPRESSIONS)
def test_a_tree_is_read_back_as_it_was(tree: exp.Expr) -> None:
    assert bare(parse_scalar(text(tree))) == bare(tree)


@given(EXPRESSIONS, EXPRESSIONS)
def test_a_tree_that_takes_the_place_of_a_column_stays_whole(tree: exp.Expr, other: exp.Expr) -> None:
    put_together = substitute(tree, {"a": other})
    assert bare(parse_scalar(text(put_together))) == bare(put_together)


@pytest.mark.parametrize("name", ["max_by", "min_by", "sum", "min", "var_pop", "corr", "mode"])
@given(EXPRESSIONS, EXPRESSIONS)
def test_a_template_keeps_whole_what_it_is_filled_with(name: str, x: exp.Expr, y: exp.Expr) -> None:
    """The order-free forms of aggregates, over arguments such as NOT a or a AND b."""
    function = lookup(name)
    assert function is not None
    assert function.order_free is not None
    template = function.order_free(Call(False, lambda position: "double"))
    assert template is not None
    filled = fill(template, x=x, y=y)
    assert bare(parse_scalar(text(filled))) == bare(filled)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("ts - INTERVAL 1 DAY 2 HOURS", "ts - (INTERVAL '1' DAY + INTERVAL '2' HOURS)"),
        ("NOT a AND b", "NOT a AND b"),
        ("a AND (b OR c)", "a AND (b OR c)"),
        ("a - b - c", "a - b - c"),
        ("(a = b) = c", "(a = b) = c"),
        # Spark reads all comparisons from left to right, and IS, IN, LIKE and BETWEEN after them.
        ("a = b < c", "(a = b) < c"),
        ("a = b IS NULL", "(a = b) IS NULL"),
        ("a = b IN (1)", "(a = b) IN (1)"),
        ("a <=> b LIKE c", "(a IS NOT DISTINCT FROM b) LIKE c"),
        ("NOT a = b", "NOT a = b"),
        ("a << b + 1 & c", "SHIFTLEFT(a, b + 1) & c"),
        ("a >> b >>> 1", "SHIFTRIGHTUNSIGNED(SHIFTRIGHT(a, b), 1)"),
        ("a || b COLLATE UTF8_LCASE", "a || b COLLATE UTF8_LCASE"),
        ("(a || b) COLLATE UTF8_LCASE LIKE c", "(a || b) COLLATE UTF8_LCASE LIKE c"),
        ("a LIKE b ESCAPE '!' OR c", "a LIKE b ESCAPE '!' OR c"),
        # The minus of a number is part of it.
        ("-9223372036854775808L", "CAST(-9223372036854775808 AS BIGINT)"),
        ("-128Y", "CAST(-128 AS TINYINT)"),
        ("-1::STRING", "CAST(-1 AS STRING)"),
        ("-1.5BD", "CAST('-1.5' AS DECIMAL(2, 1))"),
        ("2 - 1", "2 - 1"),
        ("-a::INT", "-CAST(a AS INT)"),
        # Literals keep their types.
        ("DATE '2026-01-01'::STRING", "CAST(CAST('2026-01-01' AS DATE) AS STRING)"),
        ("TIMESTAMP '2026-01-01 00:00:00'", "CAST('2026-01-01 00:00:00' AS TIMESTAMP)"),
        ("TIMESTAMP '2026-01-01 00:00:00Z'", "TIMESTAMP '2026-01-01 00:00:00Z'"),
        ("TIMESTAMP '2026-01-01 00:00 Europe/Rome'", "TIMESTAMP '2026-01-01 00:00 Europe/Rome'"),
        ("TIME '09:00'", "CAST('09:00' AS TIME)"),
        ("CAST(a AS TIME(3))", "CAST(a AS TIME(3))"),
    ],
)
def test_text_stays_readable(written: str, read: str) -> None:
    assert text(parse_scalar(written)) == read


@pytest.mark.parametrize(
    "written",
    ["a LIKE b = c", "NOT a LIKE b = c", "a IS NULL = b", "a IN (1) < b", "a -|- b", "a SIMILAR TO b", "a <-> b"],
)
def test_what_spark_does_not_parse_does_not_parse(written: str) -> None:
    with pytest.raises(InvalidSQLError, match="does not parse"):
        parse_scalar(written)


def kinds(of: type[exp.Expr]) -> Iterator[type[exp.Expr]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def example(kind: type[exp.Expr]) -> str | None:
    """A node of a kind with columns for its parts, as text; None where it cannot be one of an expression."""
    parts = [name for name, required in kind.arg_types.items() if required or name == "expression"]
    args = {name: [exp.column("z")] if name == "expressions" else exp.column(name[0]) for name in parts}
    try:
        written = kind(**args).sql(dialect=ViewSQL, unsupported_level=ErrorLevel.IGNORE)
        return written if type(parse_scalar(written)) is kind else None
    except Exception:  # no node of an expression, or not with columns as its parts
        return None


def test_every_operator_has_its_strength() -> None:
    """A kind of node that is written with a bare operand at an edge is in BINDING, or is never an operand."""
    edges = {kind for kind in kinds(exp.Expr) if re.match(r"\w\b(?!\()", example(kind) or "")}
    assert edges >= {exp.Add, exp.Like, exp.Bracket, exp.Collate, exp.Between}
    never = {exp.Column, exp.Identifier, exp.Aliases, exp.PropertyEQ}
    assert edges - BINDING.keys() <= never


def test_keys_that_go_through_a_projection_keep_their_meaning() -> None:
    doubled = exp.Mul(this=column("k"), expression=exp.Literal.number(2))
    assert text(substitute(doubled, {"k": parse_scalar("a + b")})) == "(a + b) * 2"
