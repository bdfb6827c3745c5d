"""Types of expressions: asked of the engine that will run them, remembered, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from deferred.algebra.scalar import columns_of
from deferred.sql.dialect import quoted, text

Engine = Callable[[str], list[str]]
"""Answers the column types of a query, as DDL, without running it."""


class Types:
    """The engine's answers about types; a view keeps them, so that binding it again asks nobody.

    >>> Types(lambda sql: ["int"]).of([exp.Literal.number(1)], {})
    ['int']
    """

    def __init__(self, engine: Engine, known: Mapping[str, Sequence[str]] | None = None) -> None:
        self._engine = engine
        self.known: dict[str, list[str]] = {sql: list(types) for sql, types in (known or {}).items()}

    def ask(self, sql: str) -> list[str]:
        if sql not in self.known:
            self.known[sql] = self._engine(sql)
        return self.known[sql]

    def of(self, expressions: Sequence[exp.Expr], inputs: Mapping[str, str],
           keys: Iterable[str] | None = None) -> list[str]:
        """The types of expressions over columns of known types; with `keys`, of aggregates in groups of those."""
        if not expressions:
            return []
        read = sorted(frozenset().union(*(columns_of(e) for e in expressions), keys or ()))
        source = ", ".join(f"CAST(NULL AS {inputs[c]}) AS {quoted(c)}" for c in read) or "1 AS one"
        outputs = ", ".join(f"{text(e)} AS {quoted(f't{i}')}" for i, e in enumerate(expressions))
        grouping = f" GROUP BY {', '.join(quoted(c) for c in sorted(keys))}" if keys else ""
        return self.ask(f"SELECT {outputs} FROM (SELECT {source}){grouping}")

    def common(self, left: str, right: str) -> str:
        """The type in which a set operation meets columns of two types."""
        if left == right:
            return left
        return self.ask(f"SELECT CAST(NULL AS {left}) AS t UNION ALL SELECT CAST(NULL AS {right}) AS t")[0]
