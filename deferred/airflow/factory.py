"""The DAGs: one per view file, one that refreshes several views, one that looks for new commits.

Reads the configuration and the view files, and nothing else: no database, no Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, AssetAlias, AssetAll, AssetAny, Param, TriggerRule

from deferred.airflow import form
from deferred.airflow.assets import asset
from deferred.airflow.cadence import Schedule, cadence, schedule
from deferred.airflow.choose import Choose
from deferred.airflow.decide import Decide, explanation_file
from deferred.airflow.opening import configured
from deferred.airflow.operators import CreateView, Maintain, SyncLog
from deferred.config import Settings
from deferred.errors import ConfigurationError, DeferredError
from deferred.maintenance.scenarios import CHANGES_MV
from deferred.sql.viewfile import ViewFile, load_views, tables_read

START = datetime(2000, 1, 3, tzinfo=UTC)
"""Early enough for any backfill; without catch-up it causes no runs."""


@dataclass(frozen=True)
class Project:
    """What the DAGs are built from: the views in dependency order, their schedules, and the arguments of tasks."""

    views: Sequence[ViewFile]
    schedules: Mapping[str, Schedule]
    folder: Path
    task: Mapping[str, Any]
    spark_task: Mapping[str, Any]

    @classmethod
    def read(
        cls,
        config: str | os.PathLike[str] | None,
        metadata_conn_id: str | None,
        pool: str | None,
        timetables: Mapping[str, Any] | None,
    ) -> Project:
        file = configured(os.fspath(config) if config is not None else None)
        settings = Settings.resolve(file)
        views = load_views(settings.views_folder)
        pool = pool or os.environ.get("DEFERRED_AIRFLOW_POOL")
        task = {"config": str(settings.file) if settings.file else file, "metadata_conn_id": metadata_conn_id}
        return cls(
            views,
            {v.name.casefold(): _schedule(v, timetables) for v in views},
            settings.local_folder,
            task,
            {**task, **({"pool": pool} if pool else {})},
        )

    def reads(self, view: ViewFile) -> tuple[list[str], list[str]]:
        """Returns the views and the base tables that a view reads."""
        names = {v.name.casefold(): v.name for v in self.views}
        read = tables_read(view.sql)
        return [names[n] for n in read if n in names], [n for n in read if n not in names]


def view_dags(
    config: str | os.PathLike[str] | None = None,
    *,
    metadata_conn_id: str | None = None,
    pool: str | None = None,
    timetables: Mapping[str, Any] | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> dict[str, DAG]:
    """Returns one DAG per view file, by its id.

    `timetables` are your own, which view files name as @name; `pool` limits the number of Spark sessions.
    """
    project = Project.read(config, metadata_conn_id, pool, timetables)
    return {view.name: _view_dag(project, view, default_args or {}) for view in project.views}


def refresh_dag(
    config: str | os.PathLike[str] | None = None,
    *,
    metadata_conn_id: str | None = None,
    pool: str | None = None,
    timetables: Mapping[str, Any] | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> DAG:
    """Returns a DAG that does one thing with several views, picked from a list; those that others read come first."""
    project = Project.read(config, metadata_conn_id, pool, timetables)
    names = [view.name for view in project.views]
    fields = {
        "views": Param(
            names,
            "Which views; those that others read come first.",
            type="array",
            title="Views",
            items={"type": "string", "enum": names},
            minItems=1,
            uniqueItems=True,
            examples=names,
        ),
        **{k: v for k, v in form.params().items() if k != "history"},
    }
    fields["action"].schema = {**fields["action"].schema, "enum": [a for a in form.ACTIONS if a != "replay"]}
    with DAG(
        "deferred_refresh",
        description="Refreshes several views at once, upstream ones first.",
        schedule=None,
        start_date=START,
        catchup=False,
        params=fields,
        tags=["deferred"],
        max_active_runs=1,
        default_args={"owner": "deferred", "retries": 3, **(default_args or {})},
        doc_md="Pick views and an action; each view is processed after those of the picked views that it reads.",
    ) as dag:
        choose = Choose(task_id="plan", views=names, **project.task)
        tasks = {
            name: Maintain(
                task_id=name,
                view=name,
                action="{{ params.action }}",
                until="{{ params.until or '' }}",
                full="{{ params.full }}",
                trigger_rule=TriggerRule.NONE_FAILED,
                outlets=[asset(name)],
                max_active_tis_per_dag=1,
                **project.spark_task,
            )
            for name in names
        }
        for view in project.views:
            choose >> tasks[view.name]
            for source in project.reads(view)[0]:
                tasks[source] >> tasks[view.name]
    return dag


def sync_dag(
    config: str | os.PathLike[str] | None = None,
    *,
    metadata_conn_id: str | None = None,
    every: str = "5m",
    default_args: Mapping[str, Any] | None = None,
) -> DAG:
    """Returns a DAG that looks for new commits and announces the tables that have some, whoever wrote them."""
    project = Project.read(config, metadata_conn_id, None, None)
    with DAG(
        "deferred_sync",
        description="Finds new commits of the tracked tables and announces them as Assets.",
        schedule=cadence(every).timetable,
        start_date=START,
        catchup=False,
        tags=["deferred"],
        max_active_runs=1,
        default_args={"owner": "deferred", "retries": 3, **(default_args or {})},
        doc_md="Views without a cadence of their own refresh when a table that they read is announced here, or by "
        "the DAG that writes it.",
    ) as dag:
        SyncLog(task_id="sync", outlets=[AssetAlias("deferred_tables")], **project.task)
    return dag


# ---- one view


def _schedule(view: ViewFile, timetables: Mapping[str, Any] | None) -> Schedule:
    try:
        return schedule(view.options, timetables)
    except DeferredError as error:
        raise ConfigurationError(f"{view.source}: {error}") from None


def _view_dag(project: Project, view: ViewFile, default_args: Mapping[str, Any]) -> DAG:
    timing = project.schedules[view.name.casefold()]
    views, tables = project.reads(view)
    notes = _Notes.of(view)
    with DAG(
        view.name,
        description=view.comment or notes.text.split("\n")[0] or f"Maintains the view {view.name}.",
        schedule=timing.runs.timetable if timing.runs else _on_assets(views, tables),
        start_date=START,
        catchup=False,
        max_active_runs=1,
        params=form.params(),
        tags=["deferred", f"policy {timing.policy}", view.options.scenario, *notes.tags],
        default_args={"owner": notes.owner, "retries": 3, **default_args},
        doc_md=_document(project, view, timing, views, tables, notes),
    ) as dag:
        decide = Decide(
            task_id="plan",
            view=view.name,
            schedule=timing,
            upstream={name: project.schedules[name.casefold()] for name in views},
            inlets=[asset(name) for name in (*views, *tables)],
            **project.task,
        )
        create = CreateView(
            task_id="create",
            view=view.name,
            sql=view.query,
            options=view.options,
            outlets=[asset(view.name)],
            max_active_tis_per_dag=1,
            **project.spark_task,
        )
        tasks = {action: _task(project, view, action) for action in form.ACTIONS}
        decide >> [create, *tasks.values()]
        tasks["propagate"] >> tasks["partial_refresh"]
    return dag


def _task(project: Project, view: ViewFile, action: str) -> Maintain:
    def decided(key: str) -> str:
        return f"{{{{ ti.xcom_pull(task_ids='plan', key='{key}') or '' }}}}"

    return Maintain(
        task_id=action,
        view=view.name,
        action=action,
        max_active_tis_per_dag=1,
        until=decided("until") if action in form.TIMED else None,
        full=decided("full") if action in form.COMPUTING else False,
        history=decided("history") if action == "replay" else "rows",
        since=decided("since") if action == "replay" else None,
        trigger_rule=TriggerRule.NONE_FAILED,
        outlets=[asset(view.name)] if action in CHANGES_MV else [],
        **project.spark_task,
    )


def _on_assets(views: Sequence[str], tables: Sequence[str]) -> Any:
    """Returns the schedule without a cadence: all views that it reads were refreshed, or a table was announced."""
    conditions: list[Any] = [asset(name) for name in tables]
    if views:
        conditions.append(AssetAll(*(asset(name) for name in views)) if len(views) > 1 else asset(views[0]))
    if not conditions:
        return None
    return AssetAny(*conditions) if len(conditions) > 1 else conditions[0]


# ---- what people read


@dataclass(frozen=True)
class _Notes:
    """The comment at the top of a view file; lines `-- owner: …` and `-- tags: …, …` are taken out of it."""

    text: str
    owner: str
    tags: tuple[str, ...]

    @classmethod
    def of(cls, view: ViewFile) -> _Notes:
        content = view.source.read_text(encoding="utf-8-sig") if view.source else ""
        said: dict[str, str] = {}
        lines = []
        for line in re.match(r"(?:\s*--.*\n)*", content).group(0).splitlines():  # type: ignore[union-attr]
            note = line.strip().removeprefix("--").strip()
            found = re.match(r"(owner|tags)\s*:\s*(.+)$", note, re.IGNORECASE)
            if found:
                said[found.group(1).lower()] = found.group(2).strip()
            elif note:
                lines.append(note)
        tags = tuple(t.strip() for t in said.get("tags", "").split(",") if t.strip())
        return cls("\n".join(lines), said.get("owner", "deferred"), tags)


def _document(
    project: Project, view: ViewFile, timing: Schedule, views: Sequence[str], tables: Sequence[str], notes: _Notes
) -> str:
    """Returns the docs of the DAG: what the view is, when it is maintained, its SQL, and its explanation if any."""
    facts = f"Runs: {timing}. Scenario: {view.options.scenario}. Reads: "
    parts = [
        f"## {view.name}",
        notes.text,
        view.comment or "",
        facts + ", ".join((*views, *tables)) + ".",
        f"```sql\n{view.sql}\n```",
    ]
    explanation = explanation_file(project.folder, view.name)
    if explanation.is_file():
        parts += ["### How it is maintained", f"```\n{explanation.read_text(encoding='utf-8')}\n```"]
    return "\n\n".join(part for part in parts if part)
