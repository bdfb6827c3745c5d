"""View files: the one statement CREATE MATERIALIZED VIEW … AS SELECT …, its options, and the order among files."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from deferred.errors import ConfigurationError, DeferredError, InvalidInputError, InvalidSQLError, Place
from deferred.options import FLAGS, ViewOptions, check_name, check_option
from deferred.sql.dialect import parse_query, text, tokens, verbatim
from deferred.sql.tables import named_tables

FORM = "CREATE MATERIALIZED VIEW name [(column, …)] [COMMENT '…'] [WITH (option = value, …)] AS SELECT …"


@dataclass(frozen=True)
class ViewFile:
    """What a view file says.

    `sql` is the query exactly as written; `query` also has the names of the column list. `options` holds every option,
    `stated` the names of those that the file itself sets.
    """

    name: str
    sql: str
    options: ViewOptions = field(default_factory=ViewOptions)
    stated: frozenset[str] = frozenset()
    columns: tuple[str, ...] = ()
    comment: str | None = None
    source: Path | None = None
    or_replace: bool = False
    if_not_exists: bool = False

    @property
    def query(self) -> str:
        """The view's query with its columns named by the column list, if there is one.

        >>> ViewFile("v", "SELECT a FROM t", columns=("x",)).query
        'SELECT * FROM (\\nSELECT a FROM t\\n) AS `v`(`x`)'
        """
        if not self.columns:
            return self.sql
        name, *columns = (exp.to_identifier(name, quoted=True) for name in (self.name, *self.columns))
        source = exp.Subquery(this=verbatim(f"\n{self.sql}\n"), alias=exp.TableAlias(this=name, columns=columns))
        return text(exp.select("*").from_(source))

    def stating(self, options: Mapping[str, Any]) -> ViewFile:
        """Returns the same file with some options set.

        >>> ViewFile("v", "SELECT a FROM t").stating({"policy": 2}).options.policy
        2
        """
        return replace(self, options=self.options.replaced(**options), stated=self.stated.union(options))


def load_views(folder: str | Path) -> list[ViewFile]:
    """Returns the views of a folder, each after those that it reads."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigurationError(
            f"There is no folder of views {folder}. Create it, with one NAME.sql file per view, or set views.folder "
            f"in the configuration to another one."
        )
    return in_order(read_view(file) for file in sorted(folder.glob("*.sql")))


def read_view(file: str | Path) -> ViewFile:
    """Returns the view that a file defines. The file must be named after the view."""
    file = Path(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"There is no view file {file}.") from None
    except OSError as error:
        raise ConfigurationError(f"The view file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"The view file {file} is not UTF-8 text; save it as UTF-8.") from None
    view = parse_view(text, file)
    if view.name.casefold() != file.stem.casefold():
        raise ConfigurationError(
            f"{file}: The file defines the view {view.name}, so it must be called {view.name}.sql; rename the file or "
            f"the view."
        )
    return view


def read_definition(file: str | Path, name: str) -> ViewFile:
    """Returns what a file defines, for the view of a name: a query alone, or a statement that defines any view."""
    file = Path(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The file {file} cannot be read as text: {error}.") from None
    if tokens(text) and tokens(text)[0].text.upper() == "CREATE":
        return replace(parse_view(text, file), name=name)
    parse_query(text)
    return ViewFile(name, text, source=file)


def in_order(views: Iterable[ViewFile]) -> list[ViewFile]:
    """Returns the views, each after those that it reads; refuses a cycle."""
    by_name: dict[str, ViewFile] = {}
    for view in views:
        twin = by_name.setdefault(view.name.casefold(), view)
        if twin is not view:
            raise ConfigurationError(
                f"Two files define the view {view.name}: {twin.source} and {view.source}. Names are compared without "
                f"case; keep one of the files."
            )
    reads = {name: [t for t in tables_read(view.sql) if t in by_name] for name, view in by_name.items()}
    try:
        return [by_name[name] for name in graphlib.TopologicalSorter(reads).static_order()]
    except graphlib.CycleError as error:
        # The sorter lists a cycle from what is read to what reads it.
        cycle = " reads ".join(by_name[name].name for name in reversed(error.args[1]))
        raise ConfigurationError(
            f"The views read each other in a circle: {cycle}. Remove one of them from the FROM of the other."
        ) from None


def tables_read(sql: str) -> list[str]:
    """Returns the undotted names of tables that a query reads, in lower case, each once.

    >>> tables_read("WITH a AS (SELECT * FROM A JOIN b USING (k)) SELECT * FROM a WHERE x IN (SELECT x FROM c.d)")
    ['a', 'b']
    """
    tables = (table for table in named_tables(parse_query(sql)) if not table.args.get("db"))
    return list(dict.fromkeys(table.name.casefold() for table in tables))


# ---- the statement


def parse_view(text: str, source: Path | None = None) -> ViewFile:
    """Returns the view that a text defines.

    >>> view = parse_view("CREATE MATERIALIZED VIEW v WITH (policy = 2) AS SELECT a -- every a\\nFROM t;")
    >>> view.name, view.sql, view.options.policy
    ('v', 'SELECT a -- every a\\nFROM t', 2)
    """
    return _Reader(text, source).view()


class _Reader:
    """Reads the tokens of a view file once; the query itself is cut out and left as it is."""

    def __init__(self, text: str, source: Path | None) -> None:
        self.text, self.source = text, source
        try:
            self.tokens = tokens(text)
        except InvalidSQLError as error:
            raise error.prefixed(self.where(), " Is a quote left open?") from None
        self.position = 0

    def view(self) -> ViewFile:
        if not self.tokens:
            raise InvalidSQLError(f"{self.where()}There is no statement. A view file has one: {FORM}")
        self.expect("CREATE")
        or_replace = self.took("OR")
        if or_replace:
            self.expect("REPLACE")
        self.expect("MATERIALIZED")
        self.expect("VIEW")
        if_not_exists = self.took("IF")
        if if_not_exists:
            self.expect("NOT")
            self.expect("EXISTS")
        name = self.name("The name of the view")
        columns: tuple[str, ...] = self.columns() if self.at("(") else ()
        comment, options = self.clauses()
        self.expect("AS")
        view = ViewFile(name, self.query(), ViewOptions(), frozenset(), columns, comment, self.source)
        return replace(view, or_replace=or_replace, if_not_exists=if_not_exists).stating(options)

    def columns(self) -> tuple[str, ...]:
        self.expect("(")
        names: list[str] = []
        while True:
            name = self.name("The name of a column")
            if name.casefold() in (n.casefold() for n in names):
                raise self.before(f"The column {name} is named twice.")
            names.append(name)
            if self.took("COMMENT"):
                self.string("The comment of the column")
            if not self.took(","):
                self.expect(")")
                return tuple(names)

    def clauses(self) -> tuple[str | None, dict[str, Any]]:
        """COMMENT and WITH, each at most once, in either order."""
        comment: str | None = None
        options: dict[str, Any] | None = None
        while True:
            if comment is None and self.took("COMMENT"):
                comment = self.string("The comment")
            elif options is None and self.at("WITH"):
                options = self.options()
            else:
                return comment, options or {}

    def options(self) -> dict[str, Any]:
        self.expect("WITH")
        self.expect("(")
        options: dict[str, Any] = {}
        while not self.took(")"):
            name = self.name("The name of an option").lower()
            with self.located():
                check_name(name)
            if name in options:
                raise self.before(f"The option {name} is given twice.", ConfigurationError)
            self.expect("=")
            options[name] = self.value(name)
            if not self.at(")"):
                self.expect(",")
        return options

    def value(self, name: str) -> str | int | bool:
        token = self.next()
        if token is not None and name in FLAGS and token.text.lower() in ("true", "false"):
            return token.text.lower() == "true"
        if token is None or token.token_type not in (TokenType.STRING, TokenType.NUMBER):
            raise self.before(
                f"The value of {name} is expected, a number or a text in single quotes{_found(token)}.",
                ConfigurationError,
            )
        number = token.text.isdigit() and (token.token_type == TokenType.NUMBER or name == "policy")
        value = int(token.text) if number else token.text
        with self.located():
            check_option(name, value)
        return value

    def query(self) -> str:
        """Returns the text between AS and the end, which must be one query."""
        rest = self.tokens[self.position :]
        while rest and rest[-1].token_type == TokenType.SEMICOLON:
            rest = rest[:-1]
        if not rest:
            raise InvalidSQLError(f"{self.where()}The query after AS is missing: {FORM}")
        start = rest[0].start
        query = self.text[start : rest[-1].end + 1]
        # Blanks in front keep the line and column of an error those of the file.
        line_start = self.text.rfind("\n", 0, start) + 1
        blanks = "\n" * self.text.count("\n", 0, start) + " " * (start - line_start)
        try:
            parse_query(blanks + query)
        except InvalidSQLError as error:
            raise (error.prefixed(f"{self.source}: ") if self.source else error) from None
        return query

    # ---- tokens

    def at(self, text: str) -> bool:
        if self.position >= len(self.tokens):
            return False
        token = self.tokens[self.position]
        return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() == text

    def took(self, text: str) -> bool:
        found = self.at(text)
        self.position += found
        return found

    def next(self) -> Token | None:
        self.position += 1
        return self.tokens[self.position - 1] if self.position <= len(self.tokens) else None

    def expect(self, text: str) -> None:
        if not self.took(text):
            raise self.at_next(text)

    def name(self, what: str) -> str:
        token = self.next()
        if token is not None and (token.token_type == TokenType.IDENTIFIER or _is_word(token)):
            if self.at("."):
                raise self.before(f"{what} has no dots: a view lives in the warehouse, not in a catalog.")
            return token.text
        self.position -= 1
        raise self.at_next(what)

    def string(self, what: str) -> str:
        token = self.next()
        if token is None or token.token_type != TokenType.STRING:
            self.position -= 1
            raise self.at_next(f"{what}, in single quotes")
        text = token.text
        while self.position < len(self.tokens) and self.tokens[self.position].token_type == TokenType.STRING:
            following = self.tokens[self.position]
            # The tokenizer ends a text at a doubled quote, which means one.
            text += ("'" if following.start == token.end + 1 else "") + following.text
            token = following
            self.position += 1
        return text

    # ---- errors

    def where(self, token: Token | None = None) -> str:
        parts = [str(self.source)] if self.source else []
        if token is not None:
            parts.append(f"{'line' if parts else 'Line'} {self.text.count(chr(10), 0, token.start) + 1}")
        return ", ".join(parts) + (": " if parts else "")

    def at_next(self, expected: str) -> InvalidSQLError:
        """The error that the next token is not the expected one."""
        token = self.tokens[self.position] if self.position < len(self.tokens) else None
        return InvalidSQLError(
            f"{self.where(token or self.tokens[-1])}{expected} is expected{_found(token)}. "
            f"A view file has one statement: {FORM}",
            at=self.place(token or self.tokens[-1]),
        )

    def before(self, message: str, error: type[DeferredError] = InvalidSQLError) -> DeferredError:
        """An error about the token that was read last."""
        token = self.tokens[min(self.position, len(self.tokens)) - 1]
        return error(self.where(token) + message, at=self.place(token))

    def place(self, token: Token) -> Place:
        """Where a token is in the file."""
        return Place(self.text, token.start, token.end)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Adds the file and line of the last token to an error about an option."""
        try:
            yield
        except InvalidInputError as error:
            raise self.before(str(error), ConfigurationError) from None


def _is_word(token: Token) -> bool:
    return token.text[:1].isidentifier() and token.token_type != TokenType.STRING


def _found(token: Token | None) -> str:
    return f", not {token.text!r}" if token is not None else ", and the text ends here"
