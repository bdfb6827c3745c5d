"""Types of expressions: determined by the engine that will run them, remembered, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from deferred.algebra.bags import column, union_all
from deferred.algebra.scalar import columns_of
from deferred.errors import InvalidSQLError
from deferred.sql.dialect import cast, text, verbatim

Engine = Callable[[str], list[tuple[str, str]]]
"""Returns the columns of a query, (name, type as DDL), without running it."""


class Types:
    """Types that the engine has determined. They are stored with the view, so that binding it again needs no engine.

    They are stored by the text of the question, so these texts must not change from version to version.

    >>> Types(lambda sql: [("t0", "int")]).of([exp.Literal.number(1)], {})
    ['int']
    """

    def __init__(self, engine: Engine, known: Mapping[str, Sequence[Sequence[str]]] | None = None) -> None:
        self._engine = engine
        self.known: dict[str, list[tuple[str, str]]] = {
            sql: [(name, type_) for name, type_ in columns] for sql, columns in (known or {}).items()
        }

    def ask(self, sql: str) -> list[tuple[str, str]]:
        if sql not in self.known:
            self.known[sql] = self._engine(sql)
        return self.known[sql]

    def of(
        self, expressions: Sequence[exp.Expr], inputs: Mapping[str, str], keys: Iterable[str] | None = None
    ) -> list[str]:
        """The types of expressions over columns of known types; with `keys`, of aggregates in groups of those."""
        if not expressions:
            return []
        outputs = [_named(e.copy(), f"t{i}") for i, e in enumerate(expressions)]
        columns = frozenset().union(*(columns_of(e) for e in expressions), keys or ())
        query = exp.Select(expressions=outputs, from_=exp.From(this=_row_of_nulls(columns, inputs)))
        if keys:
            query.set("group", exp.Group(expressions=[column(c) for c in sorted(keys)]))
        return [type_ for _, type_ in self.ask(text(query))]

    def deterministic(self, expression: exp.Expr, inputs: Mapping[str, str]) -> bool:
        """Whether the engine considers an expression deterministic: only such an expression may be a join condition."""
        condition = exp.Is(this=verbatim(text(expression)), expression=exp.Null())
        left, right = _row_of_nulls(columns_of(expression), inputs).as_("l"), exp.Subquery(this=_constant(2, "two"))
        query = exp.Select(expressions=[exp.alias_(exp.Literal.number(1), "one")], from_=exp.From(this=left))
        query.append("joins", exp.Join(this=right.as_("r"), kind="INNER", on=condition))
        try:
            self.ask(text(query))
        except InvalidSQLError as error:
            if "NON_DETERMINISTIC" in str(error):
                return False
            raise
        return True

    def generated(self, generator: exp.Expr, inputs: Mapping[str, str]) -> list[tuple[str, str]]:
        """The columns that a generator makes."""
        source = exp.From(this=_row_of_nulls(columns_of(generator), inputs))
        return self.ask(text(exp.Select(expressions=[generator.copy()], from_=source)))

    @property
    def fails_on_overflow(self) -> bool:
        """Whether the engine is in ANSI mode, where a number or a text makes a number, and not a text."""
        return self.ask("SELECT COALESCE(1, '1') AS t")[0][1] != "string"

    def common(self, left: str, right: str) -> str:
        """The common type of two columns of a set operation."""
        if left == right or right == "void":
            return left
        if left == "void":
            return right
        sides = [exp.Select(expressions=[exp.alias_(cast(exp.Null(), type_), "t")]) for type_ in (left, right)]
        return self.ask(text(union_all(sides)))[0][1]


def _row_of_nulls(columns: Iterable[str], inputs: Mapping[str, str]) -> exp.Subquery:
    """A row of NULLs in the types of the columns."""
    listed = [_named(cast(exp.Null(), inputs[c]), c) for c in sorted(columns)]
    return exp.Subquery(this=exp.Select(expressions=listed) if listed else _constant(1, "one"))


def _constant(value: int, name: str) -> exp.Select:
    return exp.Select(expressions=[exp.alias_(exp.Literal.number(value), name)])


def _named(expression: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(expression, exp.to_identifier(name, quoted=True), copy=False)
