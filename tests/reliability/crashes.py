"""Kills every operation at every failpoint, on a copy of one warehouse each, and compares with a run without a crash."""

from __future__ import annotations

import json
import random
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
    """One crash: which operation, on which database, at which of its effects, counted from 1.

    What is there when it was repeated is compared, or if it `carries_on`, what is there when the history has gone on: that
    takes several times as long.
    """

    operation: str
    database: str
    number: int
    effect: str
    during: bool = False
    carries_on: bool = True

    def __str__(self) -> str:
        place = "during" if self.during else "before"
        more = ", carried on" if self.carries_on else ""
        return f"{self.operation} on {self.database}, {place} effect {self.number} ({self.effect}){more}"


@dataclass
class Crashes:
    """The warehouse that all copies are made of, and what the runs without a crash have shown."""

    folder: Path
    remote: str
    postgres: str | None
    """The address of a PostgreSQL server; without it, only SQLite is used."""
    worker: Worker = field(default_factory=Worker)
    carried_on: float = 1.0
    """The share of the crashes after which the history goes on, drawn by what they are."""
    known: dict[str, list[str]] = field(default_factory=dict)
    """The effects of an operation when nothing is killed: on SQLite, and so on every database."""
    states: dict[tuple[str, bool], dict[str, Any]] = field(default_factory=dict)
    """The state after it, without or with what follows."""

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
        places = self.crashes_at(self.effects(operation))
        return [
            Case(operation, database, *place, random.Random(f"{operation} {place}").random() < self.carried_on)
            for place in places
        ]

    @staticmethod
    def crashes_at(effects: list[str]) -> list[tuple[int, str, bool]]:
        before = [(number, name, False) for number, name in enumerate([*effects, "end"], start=1)]
        return before + [(number, name, True) for number, name, _ in before if name.startswith(("Delta:", "staged"))]

    def effects(self, operation: str) -> list[str]:
        """The effects of an operation when nothing is killed."""
        if operation not in self.known:
            self.learn(operation, carries_on=False)
        return self.known[operation]

    def expected(self, operation: str, carries_on: bool) -> dict[str, Any]:
        """The state after an operation, and what follows if it does, when nothing is killed."""
        if (operation, carries_on) not in self.states:
            self.learn(operation, carries_on)
        return self.states[operation, carries_on]

    def learn(self, operation: str, carries_on: bool) -> None:
        """Run an operation without a crash."""
        with self._copied("sqlite") as job:
            trace = Path(job.folder) / "effects"
            ran = self.worker.run(replace(job, operation=operation, failpoint=str(trace)))
            assert ran["status"] == 0, ran["answer"]
            effects = trace.read_text(encoding="utf-8").splitlines()[:-1]
            after = self.worker.run(replace(job, operation=operation, afterwards=True, carries_on=carries_on))
            assert after["status"] == 0, after["answer"]
        self.known.setdefault(operation, effects)
        self.states[operation, carries_on] = json.loads(after["answer"])["state"]

    def violation(self, case: Case) -> str | None:
        """Crash, repeat, carry on; returns what differs from the run without a crash."""
        wanted = self.expected(case.operation, case.carries_on)
        with self._copied(case.database) as job:
            moment = f"{case.number}+{DURING}" if case.during else str(case.number)
            crash = replace(job, operation=case.operation, failpoint=f"{job.folder}/effects:{moment}")
            died = self.worker.run(crash)
            if died["status"] != -signal.SIGKILL and not (case.during and died["status"] == 0):
                return f"it did not die: {died}"
            again = replace(job, operation=case.operation, afterwards=True, carries_on=case.carries_on)
            after = self.worker.run(again)
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
