"""The DAG files: what is made of view files, how fast, and which errors mistakes give. No Airflow runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")

from deferred.airflow.cadence import cadence, schedule
from deferred.airflow.factory import refresh_dag, view_dags
from deferred.airflow.form import Request
from deferred.airflow.opening import metadata_url
from deferred.airflow.plugin import operation_page
from deferred.errors import ConfigurationError, DeferredError, InvalidInputError
from deferred.metadata import Cut, Metadata
from deferred.options import ViewOptions
from tests.docs import blocks

ROOT = Path(__file__).parents[2]

PARSE = """
import os, runpy, sys, time
import airflow.sdk, airflow.triggers.base  # Airflow's own processes have these loaded
before = set(sys.modules)
begun = time.process_time()
found = [v for file in sys.argv[1:] for v in runpy.run_path(file).values() if type(v).__name__ == "DAG"]
seconds = time.process_time() - begun
loaded = [m for m in ("pyspark", "deltalake", "grpc", "alembic", "deferred.metadata") if m in sys.modules]
print(len(found), round(seconds, 2), *loaded)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conf" / "views").mkdir(parents=True)
    (tmp_path / "conf" / "deferred.toml").write_text("[warehouse]\n", encoding="utf-8")
    return tmp_path


def add(project: Path, name: str, rest: str, comment: str = "") -> None:
    (project / "conf" / "views" / f"{name}.sql").write_text(
        f"{comment}CREATE MATERIALIZED VIEW {name} {rest}", encoding="utf-8"
    )


def dags(project: Path, **options: Any) -> dict[str, Any]:
    return view_dags(project / "conf" / "deferred.toml", **options)


def test_parsing_is_quick_and_opens_nothing(project: Path) -> None:
    for number in range(50):
        add(
            project,
            f"view_{number}",
            f"WITH (propagate_every = '15m', refresh_every = '1h', policy = 2) AS "
            f"SELECT a, SUM(b) AS b FROM t JOIN u USING (k) WHERE a <> {number} GROUP BY a",
        )
    files = [str(ROOT / "dags" / name) for name in ("views.py", "refresh.py", "sync.py")]
    environment = {
        **os.environ,
        "DEFERRED_CONFIG": str(project / "conf" / "deferred.toml"),
        "AIRFLOW_HOME": str(project / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *files], env=environment, capture_output=True, text=True, check=True
    )
    count, seconds, *loaded = done.stdout.strip().splitlines()[-1].split()
    assert int(count) == 52
    assert loaded == []
    assert float(seconds) < 2.5, "52 DAGs"
    assert not (project / "warehouse").exists()


def test_the_dag_files_are_thin() -> None:
    for file in (ROOT / "dags").glob("*.py"):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        assert len(lines) <= 5, file


def test_the_blocks_of_the_page_make_dags() -> None:
    """One after the other, as in one file; what needs an Airflow that runs says so."""
    found = [block for block in blocks((ROOT / "docs" / "AIRFLOW.md").read_text(encoding="utf-8")) if not block.reason]
    assert {block.language for block in found} == {"python"}
    names: dict[str, Any] = {}
    for block in found:
        exec(compile(block.text, f"AIRFLOW.md, line {block.line}", "exec"), names)
    offers, refresh = names["offers"](), names["refresh"]
    assert offers.timetable.asset_condition == names["asset"]("high_value_sales")
    assert offers.get_task("sell").outlets == [names["asset"]("sales")]
    assert refresh.until == "{{ data_interval_end }}"
    assert refresh.downstream_task_ids == {"wait"}


def test_the_example_views_of_this_project() -> None:
    made = view_dags(ROOT / "conf" / "deferred.toml")
    assert {"high_value_sales", "sales_by_score"} <= made.keys()


def test_a_view_has_docs_tags_and_an_owner(project: Path) -> None:
    add(
        project,
        "v",
        "COMMENT 'What it is.' WITH (refresh_every = '@daily') AS SELECT a FROM t",
        "-- Some rows.\n-- owner: marketing\n-- tags: retail, daily\n",
    )
    (project / "warehouse" / "explain").mkdir(parents=True)
    (project / "warehouse" / "explain" / "v.txt").write_text("Plan: Scan t", encoding="utf-8")
    dag = dags(project)["v"]
    assert {"deferred", "policy 1", "combined", "retail", "daily"} <= set(dag.tags)
    assert dag.get_task("refresh").owner == "marketing"
    for text in ("Some rows.", "SELECT a FROM t", "refresh every @daily", "Plan: Scan t", "Reads: t"):
        assert text in dag.doc_md
    assert dag.max_active_runs == 1
    assert not dag.catchup


def test_a_changed_query_leaves_the_dag(project: Path) -> None:
    """The DAG of a view is made of its name and options: a view that is altered has the same one, with its new text."""
    add(project, "v", "WITH (refresh_every = '1h') AS SELECT a FROM t")
    before = dags(project)["v"]
    add(project, "v", "WITH (refresh_every = '1h') AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
    after = dags(project)["v"]
    assert after.task_ids == before.task_ids
    assert (after.dag_id, after.tags, after.schedule) == (before.dag_id, before.tags, before.schedule)
    assert "COUNT(*) AS n" in after.doc_md
    assert "COUNT(*) AS n" not in before.doc_md


def test_a_view_without_a_cadence_waits_for_what_it_reads(project: Path) -> None:
    add(project, "below", "WITH (refresh_every = '1h') AS SELECT a FROM t")
    add(project, "other", "WITH (refresh_every = '1h') AS SELECT a FROM t")
    add(project, "above", "AS SELECT a FROM below UNION ALL SELECT a FROM other UNION ALL SELECT a FROM u")
    condition = dags(project)["above"].timetable.asset_condition
    assert all(repr(name) in repr(condition) for name in ("below", "other", "u"))
    assert dags(project)["below"].timetable.asset_condition is None
    tasks = refresh_dag(project / "conf" / "deferred.toml").task_dict
    assert tasks["above"].upstream_task_ids == {"plan", "below", "other"}


def test_pools_bound_the_spark_sessions(project: Path) -> None:
    add(project, "v", "WITH (refresh_every = '1h') AS SELECT a FROM t")
    dag = dags(project, pool="few", metadata_conn_id="meta")["v"]
    assert dag.get_task("refresh").pool == "few"
    assert dag.get_task("plan").pool == "default_pool"
    assert dag.get_task("refresh").metadata_conn_id == "meta"


def test_a_scheduled_run_does_what_the_view_is_maintained_by(project: Path) -> None:
    """A view that was altered has another scenario than its file, until that is changed as well."""
    add(project, "v", "WITH (propagate_every = '1h', refresh_every = '1d') AS SELECT a FROM t")
    plan = dags(project)["v"].get_task("plan")
    with Metadata.open(f"sqlite:///{project}/metadata.db", create=True) as metadata:
        own = metadata.tables.add(name="v", location="/v/mv", kind="view")
        options, shown = ViewOptions(scenario="base_log"), Cut(at("2026-01-01T01:00"), {})
        view = metadata.views.add(
            name="v",
            sql="SELECT a FROM t",
            options=options,
            columns=[("a", "int")],
            location="/v",
            table_id=own.id,
            depends_on=[],
            shown=shown,
        )
        assert plan.by_policy(view, at("2026-01-01T02:00")) == []
        assert plan.by_policy(view, at("2026-01-02T00:00")) == ["refresh"]
        combined = metadata.views.update(view.id, scenario="combined")
    assert plan.by_policy(combined, at("2026-01-01T02:00")) == ["propagate"]


def test_nothing_secret_is_in_a_dag(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hush-hush")
    (project / "conf" / "deferred.toml").write_text(
        '[warehouse]\nmetadata_url = "postgresql://me:${DATABASE_PASSWORD}@host/db"\n', encoding="utf-8"
    )
    add(project, "v", "AS SELECT a FROM t")
    dag = dags(project)["v"]
    for task in dag.tasks:
        assert "hush-hush" not in repr({k: v for k, v in vars(task).items() if k != "dag"})


# ---- cadences


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment", "tick"),
    [
        ("15m", "2026-01-01T10:59", "2026-01-01T10:45"),
        ("1h", "2026-01-01T10:00", "2026-01-01T10:00"),
        ("30 6 * * *", "2026-01-02T06:29", "2026-01-01T06:30"),
        ("@weekly", "2026-01-07T00:00", "2026-01-04T00:00"),
    ],
)
def test_ticks(text: str, moment: str, tick: str) -> None:
    assert cadence(text).last(at(moment)) == at(tick)


def test_policies_become_schedules() -> None:
    both = schedule(ViewOptions(propagate_every="1h", refresh_every="24h", policy=2))
    assert str(both) == "propagate every 1h, partial_refresh every 24h"
    assert both.refresh_due(at("2026-01-01T23:00"), at("2026-01-02T00:00"))
    assert both.refresh_due(at("2026-01-01T20:00"), at("2026-01-02T03:00")), "the tick at midnight was missed"
    assert not both.refresh_due(at("2026-01-02T00:00"), at("2026-01-02T03:00"))
    lag = schedule(ViewOptions(target_lag="1h"))
    assert lag.runs is not None
    assert lag.runs.every == timedelta(minutes=30)
    quick = schedule(ViewOptions(propagate_every="1h", refresh_every="10m", policy=1))
    assert quick.runs is not None
    assert quick.runs.every == timedelta(minutes=10)
    assert schedule(ViewOptions(propagate_every="1h", refresh_every="1d", scenario="base_log")).runs is not None
    only = schedule(ViewOptions(propagate_every="1h"))
    assert not only.refresh_due(None, at("2026-01-02T03:00"))


def test_a_custom_timetable(project: Path) -> None:
    from airflow.sdk import CronTriggerTimetable

    mine = CronTriggerTimetable("0 9 * * 1-5", timezone="UTC")
    add(project, "v", "WITH (refresh_every = '@workdays') AS SELECT a FROM t")
    assert dags(project, timetables={"workdays": mine})["v"].timetable is mine
    with pytest.raises(ConfigurationError, match=r"v\.sql: There is no timetable @workdays"):
        dags(project)
    with pytest.raises(ConfigurationError, match="leave propagate_every out"):
        schedule(ViewOptions(propagate_every="1h", refresh_every="@mine"), {"mine": mine})
    with pytest.raises(ConfigurationError, match="not a cron expression"):
        cadence("99 * * * *")


# ---- the form


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"action": "drop"}, "action must be one of refresh, propagate"),
        ({"action": "verify", "until": "2026-01-01"}, "not with verify"),
        ({"action": "partial_refresh", "full": True}, "not with partial_refresh"),
        ({"action": "refresh", "until": "soon"}, "until cannot be read"),
        ({"action": "refresh", "until": "2999-01-01"}, "is in the future"),
        ({"action": "replay"}, "replay needs until"),
    ],
)
def test_values_that_cannot_be_combined_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Request.read(values)


def test_a_connection_names_the_metadata_database() -> None:
    from airflow.sdk import Connection

    postgres = Connection(
        conn_id="c", conn_type="postgres", login="me", password="p@ss/word", host="db", port=5433, schema="d"
    )
    assert metadata_url(postgres) == "postgresql://me:p%40ss%2Fword@db:5433/d"
    assert metadata_url(Connection(conn_id="c", conn_type="sqlite", host="/tmp/x.db")) == "sqlite:////tmp/x.db"


def test_the_page_of_an_operation_escapes() -> None:
    page = operation_page({"kind": "refresh", "view": "<v>", "to_cut": {"versions": {"t": 3}}, "message": None})
    assert "&lt;v&gt;" in page
    assert "t: 3" in page


LINKED = """
from airflow import settings
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.session import create_session
from deferred.airflow.plugin import dags

import_all_models()
Base.metadata.create_all(settings.engine)
with create_session() as session:
    session.add(DagBundleModel(name="files"))
    session.flush()
    session.add(DagModel(dag_id="sales_by_region", is_stale=False, bundle_name="files"))
    session.add(DagModel(dag_id="removed", is_stale=True, bundle_name="files"))
print(sorted(dags()))
"""


def test_a_view_without_a_dag_has_no_link_to_one(tmp_path: Path) -> None:
    """In Airflow's own database: a DAG whose file is gone is no place to be led to."""
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LINKED], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['sales_by_region']"


def test_errors_of_the_engine_in_airflows_terms() -> None:
    import logging

    from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

    from deferred.airflow.opening import explained
    from deferred.errors import LeaseHeldError, LogLostError, SparkFailure

    def raised(error: DeferredError, since: datetime) -> type[BaseException]:
        with (
            pytest.raises(Exception, match="what happened") as found,
            explained(logging.getLogger("t"), since, timedelta(hours=1)),
        ):
            raise error
        return found.type

    now = datetime.now(UTC)
    assert raised(LogLostError("what happened"), now) is AirflowFailException
    assert raised(SparkFailure("what happened"), now) is SparkFailure
    assert raised(LeaseHeldError("what happened"), now - timedelta(hours=2)) is AirflowFailException
    with pytest.raises(AirflowRescheduleException), explained(logging.getLogger("t"), now, timedelta(hours=1)):
        raise LeaseHeldError("what happened")
