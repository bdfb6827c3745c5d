"""Texts are read as Spark reads them: Spark's own parser sees the same tree in a text and in what is written of it."""

from __future__ import annotations

import random
import re
from typing import Any

from sqlglot import exp

from deferred.errors import InvalidSQLError
from deferred.sql.dialect import BINDING, parse_scalar, text, verbatim

BETWEEN = (
    *("+", "-", "*", "/", "%", "DIV", "||", "&", "|", "^", "<<", ">>", ">>>", "AND", "OR"),
    *("=", "<>", "<", "<=", ">", ">=", "<=>", "LIKE", "NOT LIKE", "RLIKE", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"),
)
BEFORE = ("", "", "", "", "-", "~", "NOT ", "- ")
AFTER = (
    "",
    "",
    "",
    "",
    "[0]",
    ".x",
    "::INT",
    " COLLATE UTF8_LCASE",
    " IS NULL",
    " IN (1, 2)",
    " BETWEEN 1 AND 2",
    " ESCAPE '!'",
)
VALUES = (
    "a",
    "b",
    "f(a)",
    "1",
    "2Y",
    "1.5BD",
    "(a)",
    "DATE '2026-01-01'",
    "TIMESTAMP '2026-01-01 00:00:00Z'",
    "TIME '09:00:00'",
)
SEED, NUMBER = 11, 3000
LITERAL = re.compile(r"cast\((-?\d[-\w:. ]*) as [a-z]+(?:\([\d, ]+\))?\)")


def flat(draw: random.Random) -> str:
    """Operators and values in a row, without parentheses that would say what belongs together."""
    pieces = [draw.choice(BEFORE) + draw.choice(VALUES) + draw.choice(AFTER)]
    for _ in range(draw.randint(1, 3)):
        pieces += [draw.choice(BETWEEN), draw.choice(BEFORE[:-2]) + draw.choice(VALUES) + draw.choice(AFTER)]
    return " ".join(pieces)


def spelled_out(tree: exp.Expr) -> str:
    """A tree with all of its operands in parentheses."""
    whole = tree.copy()
    for node in reversed(list(whole.walk())):  # what is below comes first
        if type(node) in BINDING and node.parent is not None and not isinstance(node.parent, exp.Escape):
            node.replace(exp.Paren(this=node.copy()))
    return text(whole)


def with_shifts(tree: exp.Expr) -> exp.Expr:
    """A tree with its shifts as operators: what is written has them as functions, which mean the same."""
    whole = exp.Paren(this=tree.copy())
    for node in reversed(list(whole.walk())):  # what is below comes first
        if isinstance(node, (exp.BitwiseLeftShift, exp.BitwiseRightShift)):
            sign, (left, right) = "<<" if isinstance(node, exp.BitwiseLeftShift) else ">>", (node.this, node.expression)
        elif isinstance(node, exp.Anonymous) and node.name == "SHIFTRIGHTUNSIGNED":
            sign, (left, right) = ">>>", node.expressions
        else:
            continue
        node.replace(verbatim(f"(({text(left)}) {sign} ({text(right)}))"))
    return whole


def test_operators_belong_to_what_spark_lets_them_belong_to(spark: Any) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()

    def shape(written: str) -> str | None:
        """What Spark has parsed. That a literal is written as a cast of its text makes no difference."""
        try:
            found = str(parser.parseExpression(written).toString())
        except Exception:
            return None
        while (bare := LITERAL.sub(r"\1", found)) != found:
            found = bare
        return found

    draw, read, refused, otherwise = random.Random(SEED), 0, 0, list[str]()
    for _ in range(NUMBER):
        written = flat(draw)
        wanted = shape(written)
        if wanted is None:
            continue  # Spark refuses it: so will it when it is asked for the types of a view
        try:
            tree = with_shifts(parse_scalar(written))
        except InvalidSQLError:
            refused += 1
            continue
        read += 1
        if shape(text(tree)) != wanted or shape(spelled_out(tree)) != wanted:
            otherwise.append(f"{written} is {wanted}, not {shape(text(tree))} or {shape(spelled_out(tree))}")
    print(f"{read} read, {refused} refused that Spark reads")
    assert otherwise == []
    assert read > 500
    assert refused < read / 10
