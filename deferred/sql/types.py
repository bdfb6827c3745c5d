"""Types of expressions: determined by the engine that will run them, remembered, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from deferred.algebra.scalar import columns_of
from deferred.errors import InvalidSQLError
from deferred.sql.dialect import quoted, text

Engine = Callable[[str], list[tuple[str, str]]]
"""Returns the columns of a query, (name, type as DDL), without running it."""


class Types:
    """Types that the engine has determined. They are stored with the view, so that binding it again needs no engine.

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
        outputs = ", ".join(f"{text(e)} AS {quoted(f't{i}')}" for i, e in enumerate(expressions))
        grouping = f" GROUP BY {', '.join(quoted(c) for c in sorted(keys))}" if keys else ""
        source = self._source(frozenset().union(*(columns_of(e) for e in expressions), keys or ()), inputs)
        return [type_ for _, type_ in self.ask(f"SELECT {outputs} FROM {source}{grouping}")]

    def deterministic(self, expression: exp.Expr, inputs: Mapping[str, str]) -> bool:
        """Whether the engine considers an expression deterministic: only such an expression may be a join condition."""
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

    @property
    def fails_on_overflow(self) -> bool:
        """Whether the engine is in ANSI mode, where a number plus a text is no floating-point number."""
        return self.ask("SELECT 1 + '1' AS t")[0][1] != "double"

    def common(self, left: str, right: str) -> str:
        """The common type of two columns of a set operation."""
        if left == right or right == "void":
            return left
        if left == "void":
            return right
        return self.ask(f"SELECT CAST(NULL AS {left}) AS t UNION ALL SELECT CAST(NULL AS {right}) AS t")[0][1]

    def _source(self, columns: Iterable[str], inputs: Mapping[str, str]) -> str:
        """A row of NULLs in the types of the columns."""
        listed = ", ".join(f"CAST(NULL AS {inputs[c]}) AS {quoted(c)}" for c in sorted(columns))
        return f"(SELECT {listed or '1 AS one'})"
