"""What is written out parses back to the same tree, however the tree was put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from deferred.algebra.aggregates.registry import Call, lookup
from deferred.algebra.scalar import column, substitute
from deferred.sql.dialect import parse_scalar, text
from deferred.sql.templates import fill

OPERATORS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.DPipe, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)
PREDICATES = (exp.EQ, exp.LT, exp.NullSafeEQ, exp.And, exp.Or)


def binary(kinds: tuple[type[exp.Expr], ...], parts: st.SearchStrategy[exp.Expr]) -> st.SearchStrategy[exp.Expr]:
    return st.builds(lambda kind, a, b: kind(this=a.copy(), expression=b.copy()), st.sampled_from(kinds), parts, parts)


def trees(parts: st.SearchStrategy[exp.Expr]) -> st.SearchStrategy[exp.Expr]:
    return st.one_of(
        binary((*OPERATORS, *PREDICATES), parts),
        parts.map(lambda a: exp.Not(this=a.copy())),
        parts.map(lambda a: exp.Neg(this=a.copy())),
        parts.map(lambda a: exp.Is(this=a.copy(), expression=exp.Null())),
        st.builds(lambda a, b, c: exp.Between(this=a.copy(), low=b.copy(), high=c.copy()), parts, parts, parts),
        st.builds(lambda a, b: exp.In(this=a.copy(), expressions=[b.copy()]), parts, parts),
    )


LEAVES = st.builds(lambda name: exp.column(name, quoted=True), st.sampled_from(["a", "b", "c"]))
EXPRESSIONS = st.recursive(LEAVES, trees, max_leaves=8)


def bare(tree: exp.Expr) -> object:
    """The shape of a tree without its parentheses, and without what the parser notes about the dialect."""
    if isinstance(tree, exp.Paren):
        return bare(tree.this)
    if isinstance(tree, exp.Column):
        return tree.name
    parts = {k: v if isinstance(v, list) else [v] for k, v in tree.args.items() if k not in ("safe", "typed")}
    shapes = {k: [bare(e) for e in v if isinstance(e, exp.Expr)] for k, v in parts.items()}
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
    ],
)
def test_text_stays_readable(written: str, read: str) -> None:
    assert text(parse_scalar(written)) == read


def test_keys_that_go_through_a_projection_keep_their_meaning() -> None:
    doubled = exp.Mul(this=column("k"), expression=exp.Literal.number(2))
    assert text(substitute(doubled, {"k": parse_scalar("a + b")})) == "(a + b) * 2"
