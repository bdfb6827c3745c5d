"""Queries of other tools that may become views: dbt's models, and SQL files that store the rows of a query."""

from __future__ import annotations

import graphlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from deferred.errors import ConfigurationError, DeferredError, InvalidInputError, InvalidSQLError
from deferred.sql.dialect import parse_query, quoted, tokens
from deferred.sql.pin import pinned, tables
from deferred.sql.viewfile import parse_view

STORED = ("table", "incremental", "materialized_view")
"""The materializations of dbt that store rows, and so have something to maintain."""


@dataclass(frozen=True)
class Model:
    """A query that may become a view, where it comes from, and the dotted name under which others read it."""

    name: str
    sql: str
    source: str
    relation: tuple[str, ...]
    tags: frozenset[str] = frozenset()
    stored: bool = True
    """Whether it has rows of its own; one that has none is a part of those that read it."""
    problem: str | None = None
    """Why nothing can be made of it."""

    def is_selected(self, patterns: Sequence[str]) -> bool:
        """Whether one of some patterns means it: a name, also with * and ?, or tag:NAME.

        >>> model = Model("orders_daily", "SELECT 1", "m.sql", ("orders_daily",), frozenset({"nightly"}))
        >>> model.is_selected(["orders*"]), model.is_selected(["tag:nightly"]), model.is_selected(["tag:x", "y"])
        (True, True, False)
        """
        return not patterns or any(
            pattern[4:] in self.tags if pattern.startswith("tag:") else fnmatchcase(self.name, pattern)
            for pattern in patterns
        )


def read_models(path: str | Path, select: Sequence[str] = ()) -> list[Model]:
    """Returns the models of a dbt project, of its manifest, or of SQL files, each after those that it reads.

    Models of dbt that store no rows are written into those that read them. Those that are selected read each other by
    name; one that is not selected stays the table that it is.
    """
    path = Path(path)
    if path.is_dir() and (path / "dbt_project.yml").exists():
        path = path / "target" / "manifest.json"
        if not path.exists():
            raise ConfigurationError(f"There is no {path}; run `dbt compile --full-refresh` in the project first.")
    if path.is_dir():
        found = [_from_file(file) for file in sorted(path.rglob("*.sql"))]
    elif path.suffix == ".json":
        found = _from_manifest(path)
    elif path.suffix == ".sql":
        found = [_from_file(path)]
    else:
        raise InvalidInputError(f"{path} is neither a dbt project, a manifest.json, a .sql file nor a folder of them.")
    taken = [model for model in found if not model.stored or model.is_selected(select)]
    models = [model for model in _in_order(taken) if model.stored]
    if not models:
        raise InvalidInputError(f"{path} has no model that stores rows{' and is selected' if select else ''}.")
    return models


# ---- dbt


def _from_manifest(file: Path) -> list[Model]:
    """The models of a manifest that dbt has written; its form is that of versions 7 (dbt 1.3) to 12."""
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        nodes = manifest["nodes"]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The manifest {file} cannot be read: {error}.") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{file} is not a dbt manifest; `dbt compile` writes target/manifest.json.") from None
    return [_from_node(node, file) for node in nodes.values() if node.get("resource_type") in ("model", "snapshot")]


def _from_node(node: Mapping[str, Any], manifest: Path) -> Model:
    config = node.get("config") or {}
    materialized = config.get("materialized")
    given = node.get("relation_name")
    relation = _parts(given) if given else (node.get("schema") or "", node.get("alias") or node["name"])
    sql = node.get("compiled_code") or _compiled(node, manifest)
    model = Model(
        node.get("alias") or node["name"],
        sql or "",
        node.get("original_file_path") or node["unique_id"],
        relation,
        frozenset(node.get("tags") or ()),
        stored=materialized not in ("view", "ephemeral"),
    )
    if node.get("language", "sql") != "sql":
        return replace(model, problem=f"It is written in {node['language']}; only SQL can be maintained.")
    if node["resource_type"] == "snapshot":
        return replace(model, problem="A snapshot keeps the past; `deferred replay` fills such a history of a view.")
    if model.stored and materialized not in STORED:
        return replace(model, problem=f"Its materialization is {materialized}, which is not known.")
    if sql is None:
        return replace(model, problem="It is not compiled; run `dbt compile --full-refresh` first.")
    return model


def _compiled(node: Mapping[str, Any], manifest: Path) -> str | None:
    """The compiled text that dbt keeps in a file: target/compiled/…, named relative to the project."""
    named = node.get("compiled_path")
    file = manifest.parents[1] / named if named and len(manifest.parents) > 1 else None
    return file.read_text(encoding="utf-8") if file is not None and file.is_file() else None


def _parts(relation: str) -> tuple[str, ...]:
    """The parts of a quoted, dotted name.

    >>> _parts("`raw data`.`orders`")
    ('raw data', 'orders')
    """
    return tuple(part.name for part in exp.to_table(relation, dialect="spark").parts)


# ---- files


def _from_file(file: Path) -> Model:
    """A file with a query, or with a statement that stores the rows of one."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        relation, sql = _statement(text, file)
    except (OSError, UnicodeDecodeError):
        return Model(file.stem, "", str(file), (file.stem,), problem="The file cannot be read as UTF-8 text.")
    except DeferredError as error:
        return Model(file.stem, "", str(file), (file.stem,), problem=str(error))
    return Model(relation[-1], sql, str(file), relation)


def _statement(text: str, file: Path) -> tuple[tuple[str, ...], str]:
    """The name of what a statement stores, the file's own where it is a bare query, and the query as written.

    >>> _statement("CREATE OR REPLACE TABLE mart.daily USING delta AS SELECT a FROM t;", Path("nightly.sql"))
    (('mart', 'daily'), 'SELECT a FROM t')
    >>> _statement("INSERT OVERWRITE TABLE daily (SELECT a FROM t)", Path("nightly.sql"))
    (('daily',), '(SELECT a FROM t)')
    >>> _statement("SELECT a FROM t", Path("daily.sql"))
    (('daily',), 'SELECT a FROM t')
    """
    found = tokens(text)
    while found and found[-1].token_type == TokenType.SEMICOLON:
        found = found[:-1]
    if not found:
        raise InvalidSQLError("The file has no statement.")
    if any(token.token_type == TokenType.SEMICOLON for token in found):
        raise InvalidSQLError("The file has several statements; only one that stores the rows of a query is a view.")
    words = [token.text.upper() for token in found]
    if "MATERIALIZED" in words[:4]:
        view = parse_view(text, file)
        return (view.name,), view.query
    if words[0] not in ("CREATE", "INSERT"):
        parse_query(text)
        return (file.stem,), _from(found[0], found, text)
    if words[:2] == ["INSERT", "INTO"]:
        raise InvalidSQLError("INSERT INTO adds rows to what is there; a view is one query over its tables.")
    begin = 1 + next(
        (
            n
            for n, word in enumerate(words)
            if word in ("TABLE", "VIEW", "OVERWRITE") and words[n + 1 : n + 2] != ["TABLE"]
        ),
        len(words),
    )
    if words[begin : begin + 3] == ["IF", "NOT", "EXISTS"]:
        begin += 3
    name = [found[begin].text] if begin < len(found) else []
    while begin + 2 < len(found) and words[begin + 1] == ".":
        begin += 2
        name.append(found[begin].text)
    query = _first_query(found, begin + 1, words[0] == "CREATE")
    if query is None or not name:
        raise InvalidSQLError("The statement stores no rows of a query.")
    sql = _from(query, found, text)
    parse_query(sql)
    return tuple(name), sql


def _first_query(found: Sequence[Token], begin: int, after_as: bool) -> Token | None:
    """The token with which the query of a statement begins: behind AS, or the first word that begins one."""
    depth = 0
    for n in range(begin, len(found)):
        word = found[n].text.upper()
        if depth == 0 and after_as and word == "AS" and n + 1 < len(found):
            return found[n + 1]
        opens = word == "(" and found[n + 1 : n + 2] and found[n + 1].text.upper() in ("SELECT", "WITH")
        if depth == 0 and not after_as and (word in ("SELECT", "WITH") or opens):
            return found[n]
        depth += (word == "(") - (word == ")")
    return None


def _from(first: Token, found: Sequence[Token], text: str) -> str:
    return text[first.start : found[-1].end + 1]


# ---- models that read each other


def _in_order(models: Iterable[Model]) -> list[Model]:
    """The models, each after those that it reads, with what they read of each other under the names of views."""
    by_relation: dict[tuple[str, ...], Model] = {}
    names: dict[str, Model] = {}
    for model in models:
        if model.stored:
            twin = names.setdefault(model.name.casefold(), model)
            if twin is not model:
                model = replace(model, problem=model.problem or f"{twin.source} has the same name.")
        by_relation[_folded(model.relation)] = model
    reads = {
        relation: [] if model.problem else [r for r in map(_folded, tables(model.sql)) if r in by_relation]
        for relation, model in by_relation.items()
        if not _unreadable(model)
    }
    done: dict[tuple[str, ...], Model] = {
        relation: replace(model, problem=model.problem or _unreadable(model))
        for relation, model in by_relation.items()
        if relation not in reads
    }
    for relation, read in reads.items():
        if relation in read:
            problem = (
                "It reads itself: it was compiled for an incremental run. Run `dbt compile --full-refresh`, so that "
                "its text is the whole query."
            )
            by_relation[relation] = replace(by_relation[relation], problem=by_relation[relation].problem or problem)
            reads[relation] = []
    try:
        order = list(graphlib.TopologicalSorter(reads).static_order())
    except graphlib.CycleError as error:
        cycle = " reads ".join(".".join(relation) for relation in reversed(error.args[1]))
        raise ConfigurationError(f"The models read each other in a circle: {cycle}.") from None
    for relation in order:
        if relation not in done:
            done[relation] = _resolved(by_relation[relation], done)
    return [done[relation] for relation in dict.fromkeys([*order, *done])]


def _unreadable(model: Model) -> str | None:
    """Why a model's text cannot be parsed, None where it can."""
    if model.problem:
        return None
    try:
        parse_query(model.sql)
    except DeferredError as error:
        return str(error)
    return None


def _resolved(model: Model, done: Mapping[tuple[str, ...], Model]) -> Model:
    """A model that reads others as views: by name, or, where they store no rows, as subqueries."""
    if model.problem:
        return model
    failed = [
        other.source for path in tables(model.sql) if (other := done.get(_folded(path))) is not None and other.problem
    ]
    if failed:
        return replace(model, problem=f"It reads {', '.join(failed)}, of which nothing can be made.")

    def source(path: tuple[str, ...]) -> str | None:
        read = done.get(_folded(path))
        if read is None:
            return None
        return quoted(read.name) if read.stored else f"(\n{read.sql}\n)"

    try:
        return replace(model, sql=pinned(model.sql, source))
    except DeferredError as error:
        return replace(model, problem=str(error))


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in path)
