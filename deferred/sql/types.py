"""Types of expressions: asked of the engine that will run them, remembered, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from deferred.algebra.scalar import columns_of
from deferred.errors import InvalidSQLError
from deferred.sql.dialect import quoted, text

Engine = Callable[[str], list[tuple[str, str]]]
"""Answers the columns of a query, name and type as DDL, without running it."""


def unordered(type_: str) -> bool:
    """Whether values of a type have no order, so that there is no maximum of them and no grouping by them.

    >>> unordered("map<string, int>"), unordered("int")
    (True, False)
    """
    return any(kind in type_.lower() for kind in ("map<", "variant"))


class Types:
    """The engine's answers about types; a view keeps them, so that binding it again asks nobody.

    >>> Types(lambda sql: [("t0", "int")]).of([exp.Literal.number(1)], {})
    ['int']
    """

    def __init__(self, engine: Engine, known: Mapping[str, Sequence[Sequence[str]]] | None = None) -> None:
        self._engine = engine
        self.known: dict[str, list[tuple[str, str]]] = {
            sql: [(name, type_) for name, type_ in columns] for sql, columns in (known or {}).items()}

    def ask(self, sql: str) -> list[tuple[str, str]]:
        if sql not in self.known:
            self.known[sql] = self._engine(sql)
        return self.known[sql]

    def of(self, expressions: Sequence[exp.Expr], inputs: Mapping[str, str],
           keys: Iterable[str] | None = None) -> list[str]:
        """The types of expressions over columns of known types; with `keys`, of aggregates in groups of those."""
        if not expressions:
            return []
        outputs = ", ".join(f"{text(e)} AS {quoted(f't{i}')}" for i, e in enumerate(expressions))
        grouping = f" GROUP BY {', '.join(quoted(c) for c in sorted(keys))}" if keys else ""
        source = self._source(frozenset().union(*(columns_of(e) for e in expressions), keys or ()), inputs)
        return [type_ for _, type_ in self.ask(f"SELECT {outputs} FROM {source}{grouping}")]

    def deterministic(self, expression: exp.Expr, inputs: Mapping[str, str]) -> bool:
        """Whether the engine takes an expression for a function of its arguments: only such may decide a join."""
        joined = f"{self._source(columns_of(expression), inputs)} AS l INNER JOIN (SELECT 2 AS two) AS r"
        try:
            self.ask(f"SELECT 1 AS one FROM {joined} ON {text(expression)} IS NULL")
        except InvalidSQLError as error:
            if "NON_DETERMINISTIC" in str(error):
                return False
            raise
        return True

    def generated(self, generator: exp.Expr, inputs: Mapping[str, str]) -> list[tuple[str, str]]:
        """The columns that a generator makes."""
        return self.ask(f"SELECT {text(generator)} FROM {self._source(columns_of(generator), inputs)}")

    def common(self, left: str, right: str) -> str:
        """The type in which a set operation meets columns of two types."""
        if left == right or right == "void":
            return left
        if left == "void":
            return right
        return self.ask(f"SELECT CAST(NULL AS {left}) AS t UNION ALL SELECT CAST(NULL AS {right}) AS t")[0][1]

    def _source(self, columns: Iterable[str], inputs: Mapping[str, str]) -> str:
        """A row of NULLs in the types of the columns."""
        listed = ", ".join(f"CAST(NULL AS {inputs[c]}) AS {quoted(c)}" for c in sorted(columns))
        return f"(SELECT {listed or '1 AS one'})"
