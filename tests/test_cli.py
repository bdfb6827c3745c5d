"""The command line: exit codes, one JSON document, messages without tracebacks, and no Spark where none is needed."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deferred import cli, demo, terminal
from deferred.cli.common import this_command
from deferred.errors import UnknownObjectError
from deferred.log.sources import options
from deferred.sql.viewfile import parse_view
from tests.conftest import ConnectServer


class Project:
    """A project folder, and commands run in it."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capfd = folder, capfd

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(["--config", str(self.folder / "conf" / "deferred.toml"), *arguments])
        captured = self._capfd.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    def json(self, *arguments: str) -> Any:
        """What a command that succeeds prints with --json: one document and nothing else."""
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    def fails(self, *arguments: str, code: int = 1) -> str:
        found, out, err = self.run(*arguments)
        assert (found, out) == (code, "")
        assert "Traceback" not in err
        return err


@pytest.fixture
def project(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("CONFIG", "PATH", "METADATA_URL", "SPARK_REMOTE", "SPARK_MASTER", "DEBUG"):
        monkeypatch.delenv(f"DEFERRED_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["init"])
    assert ended.value.code in (0, None)
    return Project(tmp_path, capfd)


# ---- without Spark


def test_init_makes_everything_ready_and_can_be_repeated(project: Project) -> None:
    assert (project.folder / "conf" / "deferred.toml").read_text() == (demo.examples() / "deferred.toml").read_text()
    assert (project.folder / "warehouse" / "deferred.db").exists()
    sample = project.folder / "conf" / "views" / "example.sql.sample"
    assert parse_view(sample.read_text()).name == "sales_by_customer"
    assert {file.name for file in (project.folder / "dags").iterdir()} == {"views.py", "refresh.py", "sync.py"}
    assert "/warehouse/" in (project.folder / ".gitignore").read_text()
    (project.folder / ".gitignore").write_text("mine")
    (project.folder / "conf" / "deferred.toml").write_text('[warehouse]\npath = "elsewhere"')
    with pytest.raises(SystemExit):
        cli.main(["init"])
    assert (project.folder / "elsewhere").is_dir()
    assert (project.folder / ".gitignore").read_text() == "mine"
    answer = project.json("init")
    assert answer["warehouse"] == str(project.folder / "elsewhere")


def test_commands_do_not_create_a_warehouse(project: Project) -> None:
    (project.folder / "conf" / "deferred.toml").write_text('[warehouse]\npath = "elsewhere"')
    assert "deferred init" in project.fails("status")
    assert not (project.folder / "elsewhere").exists()


def test_an_empty_warehouse(project: Project) -> None:
    assert project.json("status") == {"views": [], "tables": []}
    assert project.json("history") == {"operations": []}
    assert project.json("sync") == {"commits": 0}
    assert project.json("refresh", "--all") == {"operations": []}
    assert project.json("apply") == {"views": {}}
    assert "There is no view file in" in project.run("plan")[1]
    assert "Tracked tables: none" in project.run("status")[1]


def test_plan_refuses_what_apply_would_refuse(project: Project) -> None:
    views = project.folder / "conf" / "views"
    (views / "lost.sql").write_text("CREATE MATERIALIZED VIEW lost AS SELECT a FROM nowhere")
    (views / "over.sql").write_text("CREATE MATERIALIZED VIEW over AS SELECT a FROM lost")
    code, out, err = project.run("plan", "--json")
    found = json.loads(out)
    assert code == 1
    assert {view["view"]: view["outcome"] for view in found["views"]} == {"lost": "refused", "over": "refused"}
    assert found["errors"]["lost"]["type"] == "UnknownObjectError"
    assert "nowhere" in err
    assert "whose own file is refused" in found["errors"]["over"]["message"]
    assert "nowhere" in project.run("apply")[2]
    assert project.json("status") == {"views": [], "tables": []}


def test_an_error_is_one_message_on_standard_error(project: Project) -> None:
    err = project.fails("propagate", "nowhere")
    assert err.startswith("deferred: ")
    assert "nowhere" in err.splitlines()[0]


def test_a_file_is_no_table(project: Project) -> None:
    """Not even the name of one, for which Spark would have to start."""
    (project.folder / "visits.csv").write_text("visitor,page\nann,home\n")
    assert "visits.csv is not a Delta table. Write it as Delta first" in project.fails("track", "visits", "visits.csv")


def test_an_error_with_json_is_a_document_as_well(project: Project) -> None:
    code, out, err = project.run("drop", "nowhere", "--json")
    assert code == 1
    assert json.loads(out)["error"]["type"] == UnknownObjectError.__name__
    assert "nowhere" in json.loads(out)["error"]["message"]
    assert "nowhere" in err


def test_several_views_fail_one_by_one(project: Project) -> None:
    code, out, err = project.run("propagate", "a", "b", "--json")
    assert code == 1
    assert set(json.loads(out)["errors"]) == {"a", "b"}
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("propagate",),
        ("nonsense",),
        ("status", "--nonsense"),
        ("read",),
        ("read", "v", "--limit", "-1"),
        ("history", "--limit", "many"),
        ("engine",),
    ],
)
def test_usage_errors_exit_with_two(project: Project, arguments: tuple[str, ...]) -> None:
    assert project.run(*arguments)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("propagate", "v", "--until", "tomorrow"), ["--until", "tomorrow", "ISO 8601"]),
        (("log", "t", "--since", "x"), ["--since", "ISO 8601"]),
        (("track", "t", "there", "--references", "a"), ["COLUMN=TABLE.COLUMN"]),
        (("create", "v"), ["no view file", "v.sql"]),
        (("create", "there/v.sql"), ["no view file there/v.sql"]),
        (("log", "t", "--counts"), ["t"]),
        (("db", "upgrade", "9999"), ["9999"]),
    ],
)
def test_mistakes_are_named_before_spark_starts(project: Project, arguments: tuple[str, ...], parts: list[str]) -> None:
    err = project.fails(*arguments)
    for part in parts:
        assert part in err


def test_the_log_of_a_table_is_chosen_and_the_reason_is_said(project: Project) -> None:
    write_deltalake(project.folder / "plain", pa.table({"a": [1]}))
    answer = project.json("track", "plain", str(project.folder / "plain"), "--log", "auto")
    assert (answer["log"], answer["table"]["kind"]) == ("files", "files")
    project.json("untrack", "plain")
    code, out, _ = project.run("track", "plain", str(project.folder / "plain"), "--log", "auto")
    assert code == 0
    assert "--log files: it is a Delta table whose change data feed is off" in " ".join(out.split())
    code, out, _ = project.run("track", "--help")
    assert all(f"{option}:" in " ".join(out.split()) for option in (*options(), "auto"))
    assert "needs a table, its key" in " ".join(project.fails("track", "t", "plain", "--log", "timestamps").split())


def test_without_a_log_it_is_said_which_one_would_suit(project: Project) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(project.folder / "fed", pa.table({"a": [1]}), configuration=feed)
    code, out, _ = project.run("track", "fed", "fed")
    assert (code, "--log feed: its change data feed is on." in " ".join(out.split())) == (0, True)
    project.json("untrack", "fed")
    answer = project.json("track", "fed", "fed")
    assert (answer["log"], answer["suits"], answer["reason"]) == ("feed", "feed", "its change data feed is on")


def test_the_commits_of_a_table_with_their_rows(project: Project) -> None:
    for values in ([1], [2, 3]):
        write_deltalake(project.folder / "plain", pa.table({"a": values}), mode="append")
        if values == [1]:
            project.json("track", "plain", "plain", "--log", "files")
    found = project.json("log", "plain", "--counts")
    assert ([commit["version"] for commit in found["commits"]], found["rows"]) == ([1], {"1": 2})
    assert "rows" in project.run("log", "plain", "--counts")[1]


def test_references_that_nothing_relies_on_are_said(project: Project) -> None:
    for name in ("orders", "address", "item"):
        write_deltalake(project.folder / name, pa.table({"id": [1], "ship": [1], "bill": [1], "item": [1]}))
    given = ("--key", "id", "--references", "ship=address.id", "--references", "item=itme.id", "--log", "files")
    notes = project.json("track", "orders", "orders", *given)["notes"]
    assert len(notes) == 2
    assert "orders(ship) refers to address(id), but no table address is tracked: it is not relied on." in notes
    assert project.json("track", "address", "address", "--log", "files")["notes"] == [
        "orders(ship) refers to address(id), but address is tracked without a key: it is not relied on."
    ]
    project.json("untrack", "address")
    assert project.json("track", "address", "address", "--key", "id", "--log", "files")["notes"] == []
    err = project.fails("track", "item", "item", "--references", "bill=address.nr", "--log", "files")
    assert "item.bill refers to address.nr, but address has no column nr" in " ".join(err.split())
    code, out, _ = project.run("track", "item", "item", "--references", "bill=Address.ship", "--log", "files")
    assert code == 0
    assert "Note: item(bill) refers to address(ship), but the key of address is (id)" in " ".join(out.split())


def test_every_table_of_a_folder_is_tracked(project: Project) -> None:
    for place in ("shop/sales", "web/sales", "web/page-views", "warehouse/views/own"):
        write_deltalake(project.folder / "lake" / place, pa.table({"a": [1]}))
        write_deltalake(project.folder / place, pa.table({"a": [1]}))
    project.json("track", "clicks", "lake/web/page-views", "--log", "files")
    found = project.json("track", "--all", "lake", "--log", "files")["tables"]
    assert {(table["name"], table["outcome"]) for table in found} == {
        ("shop_sales", "tracked"),
        ("web_sales", "tracked"),
        ("own", "tracked"),
        ("clicks", "tracked already"),
    }
    found = project.json("track", "--all", str(project.folder), "--log", "files")["tables"]
    assert not any("views/own" in table["location"] for table in found if "lake" not in table["location"])
    (taken,) = [
        table for table in found if table["location"].endswith("page-views") and "lake" not in table["location"]
    ]
    assert taken["outcome"] == "tracked"
    assert "does not exist" in project.fails("track", "--all", "./nowhere")
    (project.folder / "empty").mkdir()
    assert "no Delta table below" in project.fails("track", "--all", "empty")
    assert project.run("track", "--all", "lake", "--key", "a")[0] == 2
    assert project.run("track", "sales")[0] == 2


def test_a_shell_completes_commands_and_views(project: Project) -> None:
    environment = {**os.environ, "COMP_CWORD": "1", "_DEFERRED_COMPLETE": "complete_bash", "COMP_WORDS": "deferred imp"}
    command = [sys.executable, "-c", "from deferred.cli import main; main()"]
    done = subprocess.run(command, env=environment, cwd=project.folder, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["import-views"]


def test_the_configuration_is_named_when_it_is_wrong(project: Project) -> None:
    (project.folder / "conf" / "deferred.toml").write_text("[warehous]")
    assert "did you mean warehouse" in project.fails("status")


def test_db_commands(project: Project) -> None:
    head = project.json("db", "current")["head"]
    assert project.json("db", "downgrade", "base") == {"current": None, "head": head}
    assert "deferred db upgrade" in project.fails("status")
    assert project.json("db", "upgrade") == {"current": head, "head": head}
    assert project.json("status")["views"] == []


def test_no_engine_runs(project: Project) -> None:
    assert project.json("engine", "status") == {"running": False, "address": None, "pid": None}
    assert project.json("engine", "stop") == {"running": False, "stopped": None}
    stale = {"pid": 2**22 + 1, "port": 1, "token": "t", "host": "elsewhere", "started_at": 0.0}
    (project.folder / "warehouse" / "engine.json").write_text(json.dumps(stale))
    assert project.json("engine", "status")["running"] is False
    (project.folder / "warehouse" / "engine.json").write_text("not json")
    assert project.json("engine", "status")["running"] is False


def test_engine_start_refuses_what_cannot_work(project: Project) -> None:
    (project.folder / "conf" / "deferred.toml").write_text('[spark]\nremote = "sc://host:1/;token=secret"')
    err = project.fails("engine", "start")
    assert "spark.remote" in err
    assert "secret" not in err
    (project.folder / "conf" / "deferred.toml").write_text("")
    assert "Port 99999" in project.fails("engine", "start", "--port", "99999")


def test_demo_refuses_a_folder_with_something_in_it(project: Project) -> None:
    assert "empty folder" in project.fails("demo", "--path", str(project.folder))


def test_version_and_help(project: Project) -> None:
    code, out, _ = project.run("--version")
    assert code == 0
    assert re.fullmatch(r"deferred [\d.]+ \(Spark 4[\d.]+, Delta 4[\d.]+, delta-rs 1[\d.]+\)\n", out)
    code, out, _ = project.run("--help")
    assert code == 0
    for command in (
        "init",
        "track",
        "untrack",
        "create",
        "drop",
        "apply",
        "propagate",
        "partial-refresh",
        "refresh",
        "rebuild",
        "backfill",
        "replay",
        "sql",
        "log",
        "diff",
        "read",
        "verify",
        "explain",
        "status",
        "history",
        "report",
        "metrics",
        "sync",
        "gc",
        "engine",
        "db",
        "demo",
    ):
        assert f"  {command} " in out


def imported(project: Project, *arguments: str) -> set[str]:
    """The modules that a command imports, in a separate process."""
    script = (
        "import sys\nfrom deferred.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as ended:\n    code = ended.code\n"
        "print('modules', code or 0, *sys.modules, file=sys.stderr)"
    )
    config = ("--config", str(project.folder / "conf" / "deferred.toml"))
    done = subprocess.run(
        [sys.executable, "-c", script, *config, *arguments],
        capture_output=True,
        text=True,
        cwd=project.folder,
        check=True,
    )
    last = done.stderr.splitlines()[-1].split()
    assert last[:2] == ["modules", "0"], done.stderr
    return set(last[2:])


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "--json"),
        ("history",),
        ("report",),
        ("metrics",),
        ("sync",),
        ("db", "current"),
        ("engine", "status"),
        ("propagate", "--all"),
    ],
)
def test_what_needs_no_spark_does_not_import_it(project: Project, arguments: tuple[str, ...]) -> None:
    assert "pyspark" not in imported(project, *arguments)


def test_values_that_json_does_not_have() -> None:
    assert terminal.plain({1: [float("inf"), b"\x01", {2}]}) == {"1": ["inf", "01", [2]]}


# ---- with Spark


@pytest.fixture
def retail(project: Project, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The example's tables and views in a project whose commands use the session of the suite."""
    from deferred.maintenance.warehouse import Warehouse

    original = Warehouse.open.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Warehouse,
        "open",
        classmethod(lambda cls, config=None, **given: original(cls, config, **{**given, "spark": spark})),
    )
    for file in (demo.examples() / "views").glob("*.sql"):
        (project.folder / "conf" / "views" / file.name).write_text(file.read_text())
    for name, schema in demo.SCHEMAS.items():
        data = spark.read.csv(str(demo.examples() / "data" / f"{name}.csv"), schema=schema, header=True)
        data.write.format("delta").save(str(project.folder / name))
        assert project.json("track", name, name)["table"]["name"] == name
    return project


@pytest.mark.slow
def test_from_tables_to_a_fresh_view(retail: Project, spark: Any) -> None:
    assert retail.json("apply", "--dry-run")["views"] == {
        "high_value_sales": "to be created",
        "sales_by_score": "to be created",
    }
    assert set(retail.json("apply")["views"].values()) == {"created"}
    assert set(retail.json("apply")["views"].values()) == {"unchanged"}
    assert retail.json("read", "high_value_sales", "--limit", "0")["more"] is False
    before = retail.json("read", "high_value_sales", "--limit", "0")["rows"]
    assert len(before) == 11
    assert retail.json("read", "high_value_sales", "--limit", "3")["more"] is True

    assert retail.run("sql", "UPDATE customer SET score = 'High' WHERE custId = 9")[0] == 0
    spark.sql(f"INSERT INTO delta.`{retail.folder}/sales` VALUES (9, 101, 2, 15.16)")
    views = {view["name"]: view for view in retail.json("status")["views"]}
    assert views["high_value_sales"]["pending_commits"] == 2
    assert [row["_change"] for row in retail.json("log", "sales")["rows"]] == ["insert"]
    assert "▲" in retail.run("log", "sales")[1]
    assert [commit["version"] for commit in retail.json("log", "sales", "--counts")["commits"]] == [2]
    assert "pyspark" not in imported(retail, "log", "sales", "--counts")
    assert "pyspark" not in imported(retail, "status")

    (done,) = retail.json("propagate", "high_value_sales")["operations"]
    assert (done["state"], done["rows_deleted"], done["rows_inserted"]) == ("succeeded", 0, 7)
    assert len(retail.json("diff", "high_value_sales")["rows"]) == 7
    assert len(retail.json("read", "high_value_sales", "--fresh", "--limit", "0")["rows"]) == 18
    assert len(retail.json("read", "high_value_sales", "--fresh", "--where", "custId = 9")["rows"]) == 7
    assert retail.json("sql", "SELECT COUNT(*) AS n FROM fresh(high_value_sales) v")["rows"] == [{"n": 18}]
    assert "Δ" in retail.run("diff", "high_value_sales")[1]
    assert retail.json("read", "high_value_sales", "--limit", "0")["rows"] == before
    (again,) = retail.json("propagate", "high_value_sales")["operations"]
    assert again["state"] == "nothing"
    assert "pyspark" not in imported(retail, "propagate", "high_value_sales")
    assert retail.json("partial-refresh", "high_value_sales")["operations"][0]["rows_inserted"] == 7
    assert len(retail.json("read", "high_value_sales", "--limit", "0")["rows"]) == 18

    assert len(retail.json("refresh", "--all", "--full")["operations"]) == 2
    assert all(found["holds"] for found in retail.json("verify", "--all")["verifications"])
    assert retail.json("status")["views"][0]["fresh"] is True
    assert retail.json("explain", "high_value_sales")["scenario"] == "combined"
    assert "combined" in retail.run("explain", "high_value_sales")[1]
    assert [op["kind"] for op in retail.json("history", "high_value_sales", "--limit", "2")["operations"]]
    assert retail.json("sql", "SELECT COUNT(*) AS n FROM high_value_sales")["rows"] == [{"n": 18}]
    assert retail.json("backfill", "high_value_sales", "2026-01-01", "now", "52w")["operations"]


@pytest.mark.slow
def test_events_from_files_and_standard_input(retail: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def event(lsn: int, state: str) -> str:
        return json.dumps({"op": "u", "after": {"id": 1, "state": state}, "source": {"lsn": lsn}})

    retail.json("track", "orders", "--log", "debezium", "--columns", "id INT, state STRING", "--key", "id")
    (retail.folder / "a.json").write_text(f"{event(1, 'new')}\n{event(2, 'open')}\n")
    (retail.folder / "b.json").write_text(f"[{event(3, 'paid')}]")
    assert retail.json("ingest", "orders", "a.json", "b.json") == {"table": "orders", "changed": 1}
    monkeypatch.setattr("sys.stdin", io.StringIO(event(4, "sent")))
    code, out, _ = retail.run("ingest", "orders")
    assert (code, out) == (0, "1 changed row.\n")
    assert retail.json("sql", "SELECT state FROM orders")["rows"] == [{"state": "sent"}]
    (retail.folder / "c.json").write_text(f"{event(5, 'x')}\n{{")
    assert "Line 2 of c.json for orders is not JSON" in " ".join(retail.fails("ingest", "orders", "c.json").split())


def test_events_of_a_file_that_is_not_there_or_a_table_that_takes_none(project: Project) -> None:
    assert "nowhere.json cannot be read" in project.fails("ingest", "orders", "nowhere.json")
    (project.folder / "a.json").write_text("{}")
    assert "There is no" in " ".join(project.fails("ingest", "orders", "a.json").split())
    write_deltalake(project.folder / "plain", pa.table({"a": [1]}))
    project.json("track", "plain", "plain", "--log", "files")
    assert "Events are taken in for a table that is tracked with" in " ".join(
        project.fails("ingest", "plain", "a.json").split()
    )


@pytest.mark.slow
def test_an_engine_that_stays(server: ConnectServer) -> None:
    """The fixture starts and stops it; a second start finds the running one."""
    assert server.started["running"] is True
    assert server.command("engine", "start") == server.started
    assert "token" not in server.started["address"]
    assert server.command("engine", "status") == server.started
    assert server.command("sql", "SELECT 1 AS one")["rows"] == [{"one": 1}]


@pytest.mark.slow
def test_creating_replacing_and_dropping(retail: Project) -> None:
    query = "SELECT custId FROM sales WHERE quantity > 2"
    assert retail.json("create", "big", query, "--scenario", "base_log")["outcome"] == "created"
    assert retail.json("status")["views"][0]["scenario"] == "base_log"
    assert "big" in retail.fails("create", "big", query)
    file = retail.folder / "conf" / "views" / "big.sql"
    file.write_text(f"CREATE MATERIALIZED VIEW IF NOT EXISTS big AS {query}")
    assert retail.json("create", "big")["outcome"] == "exists already"
    file.write_text("CREATE OR REPLACE MATERIALIZED VIEW big (customer) AS SELECT custId FROM sales WHERE nothing > 2")
    assert "nothing" in retail.fails("create", str(file))
    assert retail.json("read", "big")["columns"] == ["custId"]
    file.write_text("CREATE OR REPLACE MATERIALIZED VIEW big (customer) AS SELECT custId FROM sales WHERE quantity > 4")
    found = retail.json("explain", "big", "--against", str(file))
    assert (found["view"], found["way"]) == ("big", "recomputed")
    assert [(part["table"], part["how"]) for part in found["reads"]] == [("sales", "read")]
    assert found["reads"][0]["rows"] > 0
    assert [(part["table"], part["how"]) for part in found["writes"]] == [
        ("the view itself", "all its rows, by one commit")
    ]
    strict = retail.folder / "strict.sql"
    without_rule = "SELECT SCHEMA_OF_VARIANT_AGG(TO_VARIANT_OBJECT(STRUCT(quantity))) AS s FROM sales"
    strict.write_text(f"CREATE MATERIALIZED VIEW big WITH (refresh_policy = 'incremental_strict') AS {without_rule}")
    assert "'incremental_strict'` refuses it" in retail.fails("explain", "big", "--against", str(strict))
    new = {
        "first": "SELECT custId, COUNT(*) AS n FROM sales GROUP BY custId",
        "second": "SELECT n, COUNT(*) AS k FROM first GROUP BY n",
        "third": "SELECT nothing FROM second",
    }
    for name, sql in new.items():
        (file.parent / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    code, out, _ = retail.run("plan", "--json")
    told = {view["view"]: (view["outcome"], view["how"].split(":")[0]) for view in json.loads(out)["views"]}
    assert (code, told["first"], told["second"]) == (1, *[("to be created", "incremental")] * 2)
    assert (told["third"][0], "nothing" in json.loads(out)["errors"]["third"]["message"]) == ("refused", True)
    for name in new:
        (file.parent / f"{name}.sql").unlink()
    (planned, *_) = [view for view in retail.json("plan")["views"] if view["view"] == "big"]
    assert planned["outcome"] == "to be replaced"
    assert planned["how"].startswith("recomputed. ")
    assert retail.json("create", "big")["outcome"] == "replaced"
    assert retail.json("create", "big")["outcome"] == "unchanged"
    assert retail.json("read", "big")["columns"] == ["customer"]
    assert "big" in retail.fails("untrack", "sales")
    assert retail.json("drop", "big") == {"dropped": "big"}
    assert retail.json("untrack", "sales") == {"untracked": "sales"}
    assert retail.json("gc", "--retain-hours", "0")["removed"]


@pytest.mark.slow
def test_a_broken_invariant_exits_with_one(retail: Project, spark: Any) -> None:
    retail.json("create", "high_value_sales")
    (view,) = retail.json("status")["views"]
    spark.sql(f"DELETE FROM delta.`{view['location']}` WHERE custId = 1")
    code, out, err = retail.run("verify", "high_value_sales", "--json")
    assert code == 1
    assert json.loads(out)["error"]["type"] == "InvariantError"
    assert "does not hold" in err
    assert retail.json("rebuild", "high_value_sales")["operations"][0]["state"] == "succeeded"
    assert retail.json("verify", "high_value_sales")["verifications"][0]["holds"] is True


def test_how_the_program_is_called_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the demo prints it: a relative path would not be found in another folder, a blank needs quotes."""
    program = tmp_path / "a folder" / "deferred"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["a folder/deferred", "demo"])
    assert this_command() == f"'{program}'"
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin")
    assert this_command() == "deferred"
    monkeypatch.setattr(sys, "argv", ["/x/deferred/cli/__main__.py"])
    assert this_command() == f"{sys.executable} -m deferred.cli"
