"""Bad input: thousands of damaged texts and values, each of which must be understood or refused by a DeferredError.

What is refused has changed nothing: neither the value that was given, nor the files of a project, nor its database.

Every input is drawn from a seed that is printed: `python -m tests.reliability.inputs --n 20000 --seed 7` repeats a run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import re
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from deferred import DeferredError, cli, demo
from deferred.config import Settings, parse_cadence, parse_duration, parse_timestamp
from deferred.errors import UnknownObjectError, nearest
from deferred.log.tracking import check_name
from deferred.metadata.database import parse_url
from deferred.options import OPTION_NAMES, ViewOptions
from deferred.spark.rows import matched
from deferred.sql.bind import bind
from deferred.sql.dialect import own_scalar
from deferred.sql.pin import pinned
from deferred.sql.types import Types
from deferred.sql.viewfile import parse_view, read_view
from tests.sql.test_families import LINES, REFUSED, WHOLE, document_schemas

SLOW = 20.0
"""An input that takes longer than this many seconds is a failure as well."""

# ---- damage

WORDS = [
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "OVER (", "UNION ALL", "WITH", "AS", "NULL", "NOT"),
    *("(", ")", ",", ";", "'", '"', "`", "--", "/*", "*/", "*", ".", "::", "=>", "->", "|>", "[", "]", "{", "}", "\\"),
    *(
        "\x00",
        "\r",
        "\u2028",
        "\ufeff",
        "ü",
        "漢字",
        "🙂",
        "\u202e",
        "\ud800",
        "e\u0301",
        "%s",
        "{0}",
        "${HOME}",
        "$(id)",
    ),
    *(
        "0",
        "-1",
        "1e999",
        "9" * 400,
        "0x1F",
        "1.5D",
        "NaN",
        "''''",
        "DATE '0000-00-00'",
        "INTERVAL",
        "LATERAL",
        "PIVOT",
    ),
    *("reflect('a', 'b')", "parquet.`/x`", "../../x", "~/x", "file:///x", "a" * 5000, "CASE", "END", "IN ()", "EXISTS"),
]


def damaged(text: str, chance: random.Random) -> str:
    """A valid text with one to four parts deleted, doubled, swapped, replaced or nested."""
    parts = re.findall(r"\w+|\s+|[^\w\s]", text) or [""]
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(parts))
        match chance.randrange(9):
            case 0:
                del parts[at]
            case 1:
                parts.insert(at, parts[at])
            case 2:
                other = chance.randrange(len(parts))
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts[at] = chance.choice(WORDS)
            case 4:
                parts.insert(at, f" {chance.choice(WORDS)} ")
            case 5:
                parts = parts[: at + 1]
            case 6:
                parts[at] = parts[at].swapcase()
            case 7:
                depth = chance.choice((3, 30, 300, 3000))
                parts[at] = "(" * depth + parts[at] + ")" * depth
            case 8:
                parts[at : at + 3] = (parts[at : at + 3]) * chance.choice((2, 20, 200))
        parts = parts or [""]
    return "".join(parts)


def value(chance: random.Random, depth: int = 0) -> Any:
    """Any value that a program may pass."""
    choices: list[Callable[[], Any]] = [
        lambda: None,
        lambda: chance.choice((True, False)),
        lambda: chance.choice((0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**400)),
        lambda: chance.choice((0.0, -0.0, float("nan"), float("inf"), 1e308)),
        lambda: chance.choice(WORDS),
        lambda: damaged("2026-01-31T15:00:00+02:00", chance),
        lambda: damaged("1h30m", chance),
        lambda: chance.choice((b"", b"\xff\x00", Decimal("NaN"), Decimal("1E+400"), date.min, datetime.max, object())),
        lambda: timedelta(chance.choice((-1, 0, 999999999))),
    ]
    if depth < 3:
        choices += [
            lambda: [value(chance, depth + 1) for _ in range(chance.randrange(4))],
            lambda: {
                chance.choice(("a", "b", "", 1, None)): value(chance, depth + 1) for _ in range(chance.randrange(4))
            },
            lambda: tuple(value(chance, depth + 1) for _ in range(chance.randrange(4))),
        ]
    return chance.choice(choices)()


# ---- what takes input

SCHEMAS = document_schemas()
QUERIES = [line.example for line in (*LINES, *REFUSED, *WHOLE)]
CONDITIONS = ["a = 1 AND s LIKE 'x%'", "b IN (1, 2) OR d < CURRENT_DATE() - INTERVAL 1 DAY", "NOT (a <=> NULL)"]
VIEW = """CREATE OR REPLACE MATERIALIZED VIEW v (a COMMENT 'x', b) COMMENT 'it''s'
WITH (scenario = 'combined', propagate_every = '1h', policy = 2) AS SELECT shop, COUNT(*) FROM sales GROUP BY shop;"""
CONFIGURATION = (demo.examples() / "deferred.toml").read_text(encoding="utf-8") + (
    '\n[spark.conf]\n"spark.sql.shuffle.partitions" = 8\n[functions]\ntax = "shop.functions:tax"\n'
)
URLS = ["postgresql://user:secret@host:5432/name?sslmode=require", "sqlite:////tmp/x.db"]
COMMANDS = [
    *("status", "history --limit 3", "drop v", "untrack t", "log t --counts --since 2026-01-01", "gc --retain-hours 1"),
    *("propagate v --until 2026-01-01", "read v --limit 3", "db current", "apply --dry-run", "create v --policy 2"),
]


def _columns(sql: str) -> list[tuple[str, str]]:
    """As many columns as a query of Types asks for, in types that depend on its text alone."""
    names = re.findall(r" AS `(t\d+)`", sql) or ["t"]
    return [(name, ("int", "string", "double", "array<int>", "date")[len(sql) % 5]) for name in names]


def _catalog(path: tuple[str, ...]) -> tuple[str, list[tuple[str, str]]]:
    found = {name.casefold(): name for name in SCHEMAS}.get(path[-1].casefold())
    if found is None:
        raise UnknownObjectError(f"No tracked table {path[-1]}{nearest(path[-1], SCHEMAS)}")
    return found, list(SCHEMAS[found])


def _view_file(text: str, folder: Path) -> None:
    parse_view(text)
    file = folder / "v.sql"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    read_view(file)


def _configuration(text: str, folder: Path) -> None:
    file = folder / "deferred.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    parse_url(Settings.resolve(file).metadata_url)


def _command(text: str, folder: Path) -> None:
    """A command in a project without tables. Its exit code is 0, 1 or 2; what it prints is no traceback."""
    arguments = ["--config", str(folder / "project" / "conf" / "deferred.toml"), *text.split(" ")]
    said, code, before = io.StringIO(), None, held(folder / "project")
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            cli.main(arguments)
        except SystemExit as ended:
            code = ended.code
    if code not in (0, 1, 2, None):
        raise AssertionError(f"exit code {code}: {said.getvalue()}")
    if code:
        after = held(folder / "project")
        changed = [name for name in {**before, **after} if before.get(name, ...) != after.get(name, ...)]
        if changed:
            raise AssertionError(f"refused with {code}, and something has changed: {changed}. {said.getvalue()}")
    if "Traceback" in said.getvalue():
        raise AssertionError(said.getvalue())


def held(project: Path) -> dict[str, Any]:
    """What the files of a project hold, and the rows of its database."""
    found: dict[str, Any] = {}
    for file in sorted(project.rglob("*")):
        name = file.relative_to(project).as_posix()
        if file.suffix == ".db":
            with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
                found[name] = list(connection.iterdump())
        elif not file.name.endswith((".db-wal", ".db-shm", ".db-journal")):
            found[name] = file.read_bytes() if file.is_file() else None
    return found


def _form(values: dict[str, Any]) -> None:
    from deferred.airflow.form import Request

    Request.read(values)


@dataclass(frozen=True)
class Target:
    """Something that takes input: how an input is drawn, what takes it, and how many of a hundred inputs it gets."""

    draw: Callable[[random.Random], Any]
    take: Callable[[Any, Path], Any]
    share: int


def _row(chance: random.Random) -> Any:
    names = ["a", "b", "s", "A", "x", "", 1, None]
    match chance.randrange(3):
        case 0:
            return {chance.choice(names): value(chance) for _ in range(chance.randrange(5))}
        case 1:
            return tuple(value(chance) for _ in range(chance.randrange(5)))
        case _:
            return value(chance)


TARGETS: dict[str, Target] = {
    "view SQL": Target(
        lambda chance: damaged(chance.choice(QUERIES), chance),
        lambda sql, _: bind(sql, _catalog, Types(_columns)),
        35,
    ),
    "statements": Target(
        lambda chance: damaged(chance.choice([*QUERIES, "DELETE FROM sales WHERE id = 1"]), chance),
        lambda sql, _: pinned(sql, lambda path: _catalog(path)[0]),
        10,
    ),
    "conditions": Target(lambda chance: damaged(chance.choice(CONDITIONS), chance), lambda sql, _: own_scalar(sql), 5),
    "view files": Target(lambda chance: damaged(VIEW, chance), _view_file, 10),
    "configuration": Target(lambda chance: damaged(CONFIGURATION, chance), _configuration, 8),
    "addresses": Target(lambda chance: damaged(chance.choice(URLS), chance), lambda url, _: parse_url(url), 3),
    "options": Target(
        lambda chance: {chance.choice([*OPTION_NAMES, "x"]): value(chance) for _ in range(3)},
        lambda options, _: ViewOptions.of(options),
        5,
    ),
    "names": Target(lambda chance: value(chance), lambda name, _: check_name(name, "view"), 3),
    "durations": Target(lambda chance: value(chance), lambda text, _: parse_duration(text), 3),
    "cadences": Target(lambda chance: damaged("30 6 * * 1-5", chance), lambda text, _: parse_cadence(text), 2),
    "moments": Target(lambda chance: value(chance), lambda text, _: parse_timestamp(text), 4),
    "change rows": Target(_row, lambda row, _: matched([row], ["a", "b", "s"], "r"), 6),
    "Airflow's form": Target(
        lambda chance: {chance.choice(("action", "until", "full", "history", "x")): value(chance) for _ in range(4)},
        lambda values, _: _form(values),
        4,
    ),
    "commands": Target(lambda chance: damaged(chance.choice(COMMANDS), chance), _command, 2),
}


# ---- running


def run(number: int, seed: int) -> Iterator[tuple[str, Any, str | None]]:
    """Takes inputs one by one; yields where each went, what it was, and what was wrong if anything was."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, project(Path(folder)):
        for name in chance.choices(list(TARGETS), [target.share for target in TARGETS.values()], k=number):
            target = TARGETS[name]
            given = target.draw(chance)
            drawn = repr(given)
            begun = time.monotonic()
            wrong = None
            try:
                target.take(given, Path(folder))
            except DeferredError as error:
                wrong = None if str(error).strip() else "an error without a message"
                if repr(given) != drawn:
                    wrong = f"refused, and what was given has changed: it was {drawn}"
            except Exception:
                wrong = traceback.format_exc()
            if time.monotonic() - begun > SLOW:
                wrong = f"took {time.monotonic() - begun:.1f} s"
            yield name, given, wrong


@contextlib.contextmanager
def project(folder: Path) -> Iterator[None]:
    """A project whose metadata database no command may change, and an environment without settings of ours."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("DEFERRED_")]:
        del os.environ[name]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        cli.main(["init", str(folder / "project")])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    taken: Counter[str] = Counter()
    violations = 0
    for name, given, wrong in run(arguments.n, arguments.seed):
        taken[name] += 1
        if wrong:
            violations += 1
            print(f"VIOLATION {name}: {str(given)[:300]!a}\n{wrong}")
    print(
        f"{arguments.n} inputs: " + ", ".join(f"{n} {name}" for name, n in taken.items()) + f"; violations {violations}"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
