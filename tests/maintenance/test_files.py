"""Creating views from files: what becomes of a file, given what the warehouse has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deferred.errors import InvalidSQLError, NameTakenError
from deferred.maintenance import files
from deferred.maintenance.files import Outcome
from deferred.options import ViewOptions
from deferred.sql.viewfile import ViewFile, parse_view, read_definition


@dataclass
class Record:
    """What files reads of a view's record."""

    name: str
    sql: str
    options: ViewOptions


@dataclass
class Store:
    """A warehouse as far as files needs one, that notes what is done."""

    views: dict[str, Record] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def find_view(self, name: str) -> Record | None:
        return self.views.get(name.casefold())

    def create_view(self, name: str, sql: str, **options: Any) -> None:
        if name.casefold() in self.views:
            raise NameTakenError(f"There is a view {name} already.")
        if "nowhere" in sql:
            raise InvalidSQLError("There is no table nowhere.")
        self.views[name.casefold()] = Record(name, sql, ViewOptions(**options))
        self.done.append(f"create {name}")

    def replace_view(self, name: str, sql: str, **options: Any) -> None:
        if "nowhere" in sql:
            raise InvalidSQLError("There is no table nowhere.")
        self.views[name.casefold()] = Record(name, sql, ViewOptions(**options))
        self.done.append(f"replace {name}")

    def alter_view(self, name: str, sql: str, together: Sequence[ViewFile], **options: Any) -> None:
        old = self.views[name.casefold()]
        self.views[name.casefold()] = Record(name, sql, old.options.replaced(**options))
        self.done.append(f"alter {name}")


OLD = Record("v", "SELECT a FROM t", ViewOptions(scenario="base_log", policy=2))

CASES: list[tuple[str, Outcome, Outcome, Outcome | type[Exception]]] = [
    # the file, what a dry run says, what apply does, what create does: all with OLD in the warehouse
    ("CREATE MATERIALIZED VIEW w AS SELECT a FROM t", Outcome.TO_CREATE, Outcome.CREATED, Outcome.CREATED),
    ("CREATE MATERIALIZED VIEW V AS SELECT a FROM t", Outcome.UNCHANGED, Outcome.UNCHANGED, NameTakenError),
    (
        "CREATE MATERIALIZED VIEW v WITH (policy = 2) AS SELECT a FROM t;",
        Outcome.UNCHANGED,
        Outcome.UNCHANGED,
        NameTakenError,
    ),
    (
        "CREATE MATERIALIZED VIEW v WITH (policy = 1) AS SELECT a FROM t",
        Outcome.TO_ALTER,
        Outcome.ALTERED,
        NameTakenError,
    ),
    ("CREATE MATERIALIZED VIEW v AS SELECT b FROM t", Outcome.TO_ALTER, Outcome.ALTERED, NameTakenError),
    ("CREATE MATERIALIZED VIEW v (b) AS SELECT a FROM t", Outcome.TO_ALTER, Outcome.ALTERED, NameTakenError),
    (
        "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT b FROM t",
        Outcome.TO_ALTER,
        Outcome.ALTERED,
        Outcome.EXISTS,
    ),
    (
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT a FROM t",
        Outcome.UNCHANGED,
        Outcome.UNCHANGED,
        Outcome.UNCHANGED,
    ),
    (
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT b FROM t",
        Outcome.TO_REPLACE,
        Outcome.REPLACED,
        Outcome.REPLACED,
    ),
]


@pytest.mark.parametrize(("text", "planned", "applied", "created"), CASES, ids=[case[0][7:] for case in CASES])
def test_outcomes(text: str, planned: Outcome, applied: Outcome, created: Any) -> None:
    view = parse_view(text)

    def warehouse() -> Any:
        return Store({"v": OLD})

    untouched = warehouse()
    assert files.apply(untouched, view, dry_run=True) == planned
    assert untouched.done == []
    assert files.apply(warehouse(), view) == applied
    if isinstance(created, Outcome):
        assert files.create(warehouse(), view) == created
    else:
        with pytest.raises(created):
            files.create(warehouse(), view)


def test_when_the_new_view_cannot_be_created_the_old_one_stays() -> None:
    warehouse: Any = Store({"v": OLD})
    with pytest.raises(InvalidSQLError, match="nowhere"):
        files.create(warehouse, ViewFile("V", "SELECT a FROM nowhere", or_replace=True))
    assert warehouse.views == {"v": OLD}
    assert warehouse.done == []


def test_a_file_by_its_path_or_its_name(tmp_path: Path) -> None:
    (tmp_path / "v.sql").write_text("CREATE MATERIALIZED VIEW v WITH (policy = 2) AS SELECT a FROM t")
    assert files.find("v", tmp_path) == files.find(str(tmp_path / "v.sql"), Path("elsewhere"))
    assert files.find("v", tmp_path, {"scenario": "base_log"}).options == ViewOptions(scenario="base_log", policy=2)


def test_a_file_to_compare_with_has_options_and_may_be_called_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "new.sql"
    file.write_text("CREATE MATERIALIZED VIEW other (x) WITH (policy = 2) AS SELECT a FROM t")
    found = read_definition(file, "v")
    assert (found.query, files.stated(found)) == ("SELECT * FROM (\nSELECT a FROM t\n) AS `v`(`x`)", {"policy": 2})
    file.write_text("SELECT a FROM t")
    assert (read_definition(file, "v").query, files.stated(read_definition(file, "v"))) == ("SELECT a FROM t", {})


@dataclass
class Existing(Record):
    """A view with what it reads."""

    id: int
    table_id: int
    depends_on: tuple[int, ...]


class Full:
    """A warehouse with views over each other, of which only some have files."""

    def __init__(self) -> None:
        listed = (("below", 11, (1,)), ("above", 12, (11,)), ("kept", 13, (1,)))
        query, options = "SELECT a FROM t", ViewOptions()
        self.there = [Existing(name, query, options, id_, id_, reads) for name, id_, reads in listed]

    def find_view(self, name: str) -> Existing | None:
        return next((view for view in self.there if view.name == name.casefold()), None)

    def views(self) -> list[Existing]:
        return list(self.there)

    def drop_view(self, name: str) -> None:
        (gone,) = (view for view in self.there if view.name == name)
        assert not any(gone.table_id in view.depends_on for view in self.there), "a view reads it"
        self.there.remove(gone)


def test_views_without_a_file_are_named_and_dropped_from_above() -> None:
    warehouse: Any = Full()
    views = [parse_view("CREATE MATERIALIZED VIEW Kept AS SELECT a FROM t")]
    planned = {each.view: each for each in files.plan(warehouse, views)[0]}
    assert {name: each.outcome for name, each in planned.items()} == {
        "Kept": Outcome.UNCHANGED,
        "below": Outcome.WITHOUT_FILE,
        "above": Outcome.WITHOUT_FILE,
    }
    assert planned["above"].how == "stays, unless apply --drop is used"
    assert files.without_file(warehouse, views) == ["above", "below"]
    assert len(warehouse.there) == 3
    assert files.drop_without_file(warehouse, views) == ["above", "below"]
    assert [view.name for view in warehouse.there] == ["kept"]
