"""Kills every operation at every failpoint, on a copy of one warehouse each, and compares with a run without a crash."""

from __future__ import annotations

import json
import shutil
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, inspect, make_url, text

from deferred.metadata import Metadata, migrate
from deferred.metadata.models import Base
from tests.fixtures.make_warehouse import relocate
from tests.reliability.worker import PREPARE, Job, Worker

DURING = 0.3
"""Seconds after which a process dies in the middle of a statement, which a Spark Connect server goes on with."""


@dataclass(frozen=True)
class Case:
    """One crash: which operation, on which database, at which of its effects, counted from 1."""

    operation: str
    database: str
    number: int
    effect: str
    during: bool = False

    def __str__(self) -> str:
        place = "during" if self.during else "before"
        return f"{self.operation} on {self.database}, {place} effect {self.number} ({self.effect})"


@dataclass
class Crashes:
    """The warehouse that all copies are made of, and what the runs without a crash have shown."""

    folder: Path
    remote: str
    postgres: str | None
    """The address of a PostgreSQL server; without it, only SQLite is used."""
    worker: Worker = field(default_factory=Worker)
    known: dict[tuple[str, str], tuple[list[str], dict[str, Any]]] = field(default_factory=dict)
    """For operation and database: its effects, and the state after it and what follows, when nothing is killed."""

    @property
    def databases(self) -> list[str]:
        return ["sqlite", "postgresql"] if self.postgres else ["sqlite"]

    @property
    def _origin(self) -> Path:
        return self.folder / "origin"

    def prepare(self) -> None:
        made = self.worker.run(Job(PREPARE, str(self._origin), None, self.remote))
        assert made["status"] == 0, made["answer"]
        if self.postgres:
            self._copy_to_postgres()

    # ---- running

    def cases(self, operation: str, database: str) -> list[Case]:
        """Every crash of an operation: before each of its effects, after the last, and during each that Spark makes."""
        effects, _ = self.expected(operation, database)
        return [Case(operation, database, *place) for place in self.crashes_at(effects)]

    @staticmethod
    def crashes_at(effects: list[str]) -> list[tuple[int, str, bool]]:
        before = [(number, name, False) for number, name in enumerate([*effects, "end"], start=1)]
        return before + [(number, name, True) for number, name, _ in before if name.startswith(("Delta:", "staged"))]

    def expected(self, operation: str, database: str) -> tuple[list[str], dict[str, Any]]:
        """The effects of an operation, and the state after it and what follows, when nothing is killed."""
        if (operation, database) not in self.known:
            with self._copied(database) as job:
                trace = Path(job.folder) / "effects"
                ran = self.worker.run(replace(job, operation=operation, failpoint=str(trace)))
                assert ran["status"] == 0, ran["answer"]
                effects = trace.read_text(encoding="utf-8").splitlines()[:-1]
                after = self.worker.run(replace(job, operation=operation, afterwards=True))
                assert after["status"] == 0, after["answer"]
            self.known[operation, database] = effects, json.loads(after["answer"])["state"]
        return self.known[operation, database]

    def violation(self, case: Case) -> str | None:
        """Crash, repeat, carry on; returns what differs from the run without a crash."""
        _, wanted = self.expected(case.operation, case.database)
        with self._copied(case.database) as job:
            moment = f"{case.number}+{DURING}" if case.during else str(case.number)
            crash = replace(job, operation=case.operation, failpoint=f"{job.folder}/effects:{moment}")
            died = self.worker.run(crash)
            if died["status"] != -signal.SIGKILL and not (case.during and died["status"] == 0):
                return f"it did not die: {died}"
            after = self.worker.run(replace(job, operation=case.operation, afterwards=True))
            if after["status"] != 0:
                return str(after["answer"])
            answer = json.loads(after["answer"])
            if answer["state"] == wanted:
                return None
            return f"repeated: {answer['repeated']}\n" + "\n".join(differences(wanted, answer["state"]))

    # ---- copies

    @contextmanager
    def _copied(self, database: str) -> Iterator[Job]:
        """A copy of the warehouse at a place of its own: Spark remembers the tables that it has seen at a place."""
        name = uuid.uuid4().hex[:12]
        folder = self.folder / name
        shutil.copytree(self._origin, folder)
        for kept in (folder / "warehouse" / "catalog").glob("*.json"):
            kept.write_text(kept.read_text().replace(str(self._origin), str(folder)))
        file = folder / "warehouse" / "deferred.db"
        if database == "sqlite":
            relocate(file, str(self._origin), str(folder))
            yield Job("", str(folder), None, self.remote)
        else:
            file.unlink()
            with self._database(f"copy_{name}", template="origin") as (url, engine):
                _relocate(engine, str(self._origin), str(folder))
                engine.dispose()
                yield Job("", str(folder), url, self.remote)
        shutil.rmtree(folder)

    @contextmanager
    def _database(self, name: str, template: str) -> Iterator[tuple[str, Engine]]:
        assert self.postgres is not None
        server = make_url(self.postgres).set(drivername="postgresql+psycopg")
        administration = create_engine(server, isolation_level="AUTOCOMMIT")
        with administration.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        url = server.set(database=name)
        engine = create_engine(url)
        try:
            yield url.render_as_string(hide_password=False), engine
        finally:
            engine.dispose()
            if name != "origin":
                with administration.connect() as connection:
                    connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
            administration.dispose()

    def _copy_to_postgres(self) -> None:
        """The metadata of the origin, row by row, in a PostgreSQL database."""
        origin = create_engine(f"sqlite:///{self._origin}/warehouse/deferred.db")
        with self._database("origin", template="template0") as (url, engine):
            migrate.upgrade(url)
            with origin.connect() as source, engine.begin() as target:
                for table in Base.metadata.sorted_tables:
                    rows = [row._asdict() for row in source.execute(table.select())]
                    if rows:
                        target.execute(table.insert(), rows)
                    if "id" in table.columns and table.columns["id"].autoincrement is not False:
                        number = f"pg_get_serial_sequence('{table.name}', 'id')"
                        target.execute(text(f"SELECT setval({number}, 1000) WHERE {number} IS NOT NULL"))
            Metadata.open(url).close()
        origin.dispose()


def _relocate(engine: Engine, before: str, after: str) -> None:
    """Puts one place for another in every text of a PostgreSQL database."""
    with engine.begin() as connection:
        for table in Base.metadata.tables:
            for column in inspect(connection).get_columns(table):
                type_ = str(column["type"])
                if type_.startswith(("TEXT", "VARCHAR", "JSON")):
                    connection.execute(
                        text(
                            f'UPDATE {table} SET "{column["name"]}" = '
                            f'CAST(REPLACE(CAST("{column["name"]}" AS TEXT), :before, :after) AS {type_})'
                        ),
                        {"before": before, "after": after},
                    )


def differences(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Where two states differ.

    >>> differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2})
    ['a/b: wanted 1, found 3']
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted({*wanted, *found})
            for line in differences(wanted.get(key), found.get(key), f"{path}/{key}".strip("/"))
        ]
    return [] if wanted == found else [f"{path}: wanted {wanted}, found {found}"]
