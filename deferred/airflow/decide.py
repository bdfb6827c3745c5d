"""The first task of a view's DAG: checks the request, waits for what the view reads, decides which tasks run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

from deferred.airflow.cadence import Schedule
from deferred.airflow.form import TIMED, Request
from deferred.airflow.opening import requester
from deferred.airflow.operators import Context, Deciding, log
from deferred.airflow.triggers import FreshnessTrigger
from deferred.errors import DeferredError, InvalidInputError
from deferred.maintenance.scenarios import scenario_of

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse
    from deferred.metadata import ViewRecord

BY_HAND = ("manual", "operator_triggered", "asset_materialization")
STEP_POLL = timedelta(seconds=3)


class Decide(Deciding):
    """Decides what a run does: what the form says if a person triggered it, what the view's policy says otherwise.

    A run for the interval [a, b) counts changes up to b; one that an Asset started, up to now. A backfill refreshes at
    every step, one after the other, so that each shows exactly the state at its end.
    """

    template_fields: Sequence[str] = ("view",)

    def __init__(
        self,
        *,
        view: str,
        schedule: Schedule,
        upstream: Mapping[str, Schedule] | None = None,
        upstream_timeout: timedelta = timedelta(minutes=30),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.view, self.schedule = view, schedule
        self.upstream, self.upstream_timeout = dict(upstream or {}), upstream_timeout

    def work(self, warehouse: Warehouse, context: Context) -> list[str]:
        run_type = str(getattr(context["dag_run"].run_type, "value", context["dag_run"].run_type))
        if run_type == "backfill":
            _wait_for_earlier_steps(context)
        tasks, request, since = self.decide(warehouse.find_view(self.view), run_type, context)
        if run_type in ("scheduled", "backfill") and request.until is not None:
            self.wait_for_upstream(warehouse, request.until)
        return self.branch(context, warehouse, tasks, request, since)

    def decide(
        self, view: ViewRecord | None, run_type: str, context: Context
    ) -> tuple[list[str], Request, datetime | None]:
        """Returns which tasks are to run, with which request, and for a replay of changes since when."""
        run, asked = context["dag_run"], dict(context["params"])
        start, end = run.data_interval_start, run.data_interval_end
        by_hand = run_type in BY_HAND
        if not by_hand:
            asked = {**asked, "action": "refresh", **({} if run_type == "scheduled" else run.conf or {})}
            asked["until"] = end.isoformat() if end and asked["action"] in TIMED else None
        request = Request.read(asked)
        if view is None:
            if request.until is not None and by_hand:
                raise InvalidInputError(
                    f"The view {self.view} does not exist yet, and it is created as of now: leave until empty."
                )
            return ["create"], request, None
        since = None
        if request.action == "replay" and start and end and request.until:
            since = request.until - (end - start)
        if run_type == "scheduled" or (run_type == "asset_triggered" and not (run.conf or {}).get("action")):
            return self.by_policy(view, request.until), request, since
        return [request.action], request, since

    def by_policy(self, view: ViewRecord, until: datetime | None) -> list[str]:
        """propagate every k; every m refresh (policy 1) or partial_refresh (policy 2), by the view's scenario."""
        shown = view.shown.timestamp if view.shown else None
        due = until is None or self.schedule.refresh_due(shown, until)
        return scenario_of(view).scheduled(due, self.schedule.policy)

    def wait_for_upstream(self, warehouse: Warehouse, until: datetime) -> None:
        """Wait until the views that this one reads show what their own schedules promise for that time."""
        moments = {
            name: tick.isoformat()
            for name, schedule in self.upstream.items()
            if schedule.refreshes is not None and (tick := schedule.refreshes.last(until)) is not None
        }
        existing = {view.name for view in warehouse.views()}
        stale = [name for name, moment in moments.items() if name in existing and not warehouse.is_fresh(name, moment)]
        if stale:
            log.info("Waiting for %s, which %s reads.", ", ".join(stale), self.view)
            self.defer(
                trigger=FreshnessTrigger(
                    {name: moments[name] for name in stale},
                    self.config,
                    self.metadata_conn_id,
                    deadline=(datetime.now(UTC) + self.upstream_timeout).isoformat(),
                ),
                method_name="resume",
            )

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        if event.get("error"):
            raise AirflowFailException(event["error"])
        if event["stale"]:
            log.warning(
                "%s did not become fresh in %s; %s continues with their present rows.",
                ", ".join(event["stale"]),
                self.upstream_timeout,
                self.view,
            )
        self.upstream = {}
        return self.execute(context)

    def branch(
        self, context: Context, warehouse: Warehouse, tasks: list[str], request: Request, since: datetime | None
    ) -> list[str]:
        until = request.until.isoformat() if request.until else ""
        log.info(
            "%s requested %s of %s, until %s%s.",
            requester(context),
            " and ".join(tasks) or "nothing",
            self.view,
            until or "now",
            ", by recomputation" if request.full else "",
        )
        values = {
            "until": until,
            "full": request.full,
            "history": request.history,
            "since": since.isoformat() if since else "",
        }
        for key, value in values.items():
            context["ti"].xcom_push(key=key, value=value)
        if tasks != ["create"]:
            keep_explanation(warehouse, self.view)
        self.skip_others(context, tasks)
        return tasks


def _wait_for_earlier_steps(context: Context) -> None:
    """Airflow starts several runs of a backfill at once; a step must wait for the one before it."""
    before = context["ti"].get_previous_dagrun()
    if before is not None and before.run_type == "backfill" and before.state == "running":
        raise AirflowRescheduleException(datetime.now(UTC) + STEP_POLL)


def explanation_file(folder: Path, view: str) -> Path:
    """Returns the file with the explanation of a view: DAG files open no database, and their docs show it."""
    return folder / "explain" / f"{view}.txt"


def keep_explanation(warehouse: Warehouse, view: str) -> None:
    """Write how the view is maintained to a file, for the docs of its DAG, once per definition."""
    record = warehouse.find_view(view)
    file = explanation_file(warehouse.settings.local_folder, view)
    if record is None or (file.exists() and file.stat().st_mtime > record.created_at.timestamp()):
        return
    try:
        text = str(warehouse.explain(view))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except (DeferredError, OSError) as error:
        log.warning("The explanation of %s was not written: %s", view, error)
