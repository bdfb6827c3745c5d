"""The functions that users have defined and views call: what they are, and whether they are still what they were.

A function may be defined again while a view has rows computed with it. The log of no table says so, and a delta program
would mix rows of both meanings. So each function is remembered with the view as Spark describes it, or as the text of
the module where [functions] finds it, and compared before the view's rows are used again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from sqlglot import exp

from deferred.errors import InvalidSQLError, UnsafeSQLError, UnsupportedSQLError
from deferred.log.context import Context
from deferred.metadata import RememberedDefinition, ViewRecord
from deferred.spark.session import NOT_MEANING
from deferred.sql.ddl import command
from deferred.sql.dialect import parse_query, quoted
from deferred.sql.functions import is_built_in
from deferred.sql.refusing import refuse_what_varies

Functions = Mapping[str, str]
"""What each function is, by the name by which it is called, in small letters."""

KEPT = ("Class", "Type", "Input", "Returns", "Collation", "Deterministic", "Data Access", "Configs", "SQL Path", "Body")
"""What Spark says of a function that decides on its values; when it was created, and by whom, does not."""

SPARKS_OWN = "org.apache.spark.sql.catalyst."
"""Where the classes of Spark's own functions are."""

_FACT = re.compile(r"([A-Z][A-Za-z ]*):(.*)", re.DOTALL)


def called(sql: str) -> list[str]:
    """The names of the functions that a query calls and that SQL itself does not have, as they are written.

    >>> called("SELECT upper(a), tax(a), shop.main.`Tax`(a) FROM t WHERE tax(b) > 1")
    ['`shop`.`main`.`tax`', '`tax`']
    """
    found = set()
    for call in parse_query(sql).find_all(exp.Anonymous):
        above = call.parent
        path = above.this if isinstance(above, exp.Dot) and above.expression is call else None
        if path is None and is_built_in(call):
            continue
        words = [] if path is None else [part.name for part in path.find_all(exp.Identifier, bfs=False)]
        found.add(".".join(quoted(word.lower()) for word in (*words, call.name)))
    return sorted(found)


def described(context: Context, sql: str) -> dict[str, str]:
    """What the functions are that a query calls, and those that these call; refused if one reads tables or varies."""
    return _described(context, called(sql))


def changed(context: Context, definition: RememberedDefinition) -> list[str]:
    """The functions that are not what they were when a view's rows were computed. Of none, nothing is asked."""
    known = definition.functions or {}
    return differing(known, _described(context, known))


def differing(known: Functions | None, now: Functions) -> list[str]:
    """The functions that are not what they were.

    >>> differing({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"})
    ['b']
    """
    return sorted(name for name, what in (known or {}).items() if now.get(name) != what)


def explained(others: Iterable[str]) -> str:
    """Why a view is computed from its base tables again."""
    return f"Defined again since the view was computed: {', '.join(others)}. So the whole view is computed again."


def now(context: Context, view: ViewRecord) -> Functions:
    """What the functions of a view are; those of a view that an earlier version created are found in its text.

    Refused where one returns another type: the view has been bound to the one that it had.
    """
    known = view.definition.functions
    if known is None:
        try:
            return described(context, view.sql)
        except (InvalidSQLError, UnsupportedSQLError):  # of one that would be refused today, nothing can be compared
            return {}
    found = _described(context, known)
    for name in differing(known, found):
        before, returns = (json.loads(each.get(name, "{}")).get("Returns") for each in (known, found))
        if before != returns and name in found:
            raise InvalidSQLError(
                f"The function {name} returned {before} when view {view.name} was defined, and returns {returns} now. "
                f"Give the view its definition again: alter_view({view.name!r}, …)."
            )
    return found


def _described(context: Context, names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    waiting = list(names)
    if waiting:
        context.engine.begin_anew()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        own = context.engine.own_function(name)
        if own is not None:
            found[name] = own
            continue
        facts = _facts(row[0] for row in context.engine.rows(command("DESCRIBE FUNCTION EXTENDED", name)))
        if facts.get("Class", SPARKS_OWN).startswith(SPARKS_OWN) and "Body" not in facts:
            raise UnsafeSQLError(
                f"The function {name} is one of this Spark's own that deferred does not know: it may read anything, "
                f"and is refused for safety. Express it by functions of Spark 4.2."
            )
        found[name] = json.dumps({key: facts[key] for key in KEPT if key in facts})
        if "Body" in facts:
            _refuse(name, facts)
            waiting += called(_query(facts["Body"]))
    return found


def _facts(lines: Iterable[str]) -> dict[str, str]:
    """The lines of a description, by the word with which each begins; what has none belongs to the line before.

    >>> _facts(["Function: main.tax", "Input:    a INT", "          b INT", "Body:     a * b"])["Input"]
    'a INT b INT'
    >>> _facts(["Configs: spark.sql.ansi.enabled=true", "         spark.sql.shuffle.partitions=2"])["Configs"]
    'spark.sql.ansi.enabled=true'
    """
    found: dict[str, str] = {}
    last = ""
    for line in lines:
        fact = _FACT.match(line)
        if fact is not None:
            last = fact[1].strip()
            found[last] = fact[2].strip()
        elif last:
            found[last] += f" {line.strip()}"
    if "Configs" in found:
        found["Configs"] = " ".join(word for word in found["Configs"].split() if not word.startswith(NOT_MEANING))
    return found


def _query(body: str) -> str:
    return body if re.match(r"\s*(SELECT|WITH)\b", body, re.IGNORECASE) else f"SELECT {body}"


def _refuse(name: str, facts: Mapping[str, str]) -> None:
    """Refuse a function that reads tables, that varies, or that another process would not find."""
    if "." not in facts.get("Function", "."):
        raise InvalidSQLError(
            f"The function {name} is one of this session alone. A function that views use must be found by every "
            f"process: name it in [functions] of the configuration, or use CREATE FUNCTION."
        )
    body = parse_query(_query(facts["Body"]))
    if body.find(exp.Table) is not None or facts.get("Data Access", "").startswith("READS"):
        raise UnsupportedSQLError(
            f"The function {name} reads tables, and a view that calls it would not follow their changes. Write its "
            f"query into the view: {facts['Body'][:200]}"
        )
    refuse_what_varies(body)
