"""Operators: the verbs of the engine as Airflow tasks. A task's XCom is the operation's record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, BaseOperatorLink, BaseXCom, SkipMixin, conf

from deferred.airflow.assets import asset
from deferred.airflow.form import ACTIONS, Request
from deferred.airflow.opening import explained, opened, requester, waiting_since
from deferred.config import parse_timestamp
from deferred.options import ViewOptions
from deferred.progress import Progress
from deferred.sql.viewfile import ViewFile

if TYPE_CHECKING:
    from deferred.maintenance.operation import Operation
    from deferred.maintenance.warehouse import Warehouse

LEASE_TIMEOUT = timedelta(hours=1)
Context = Any
log = logging.getLogger("deferred.airflow")


class OperationLink(BaseOperatorLink):
    """The link from a task to the page of its operation."""

    name = "Operation"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        done = BaseXCom.get_value(ti_key=ti_key, key="return_value")
        return operation_url(done["id"]) if isinstance(done, Mapping) and done.get("id") else ""


def operation_url(operation_id: str) -> str:
    """Returns the address of the page of an operation, which deferred.airflow.plugin serves."""
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/deferred/operations/{operation_id}"


class DeferredOperator(BaseOperator):
    """What all operators share: which warehouse, whose metadata database, how long to wait for another process.

    :param config: the configuration file, DEFERRED_CONFIG or conf/deferred.toml by default
    :param metadata_conn_id: an Airflow Connection to the metadata database, instead of the configuration's
    :param lease_timeout: how long another process may keep the view before the task fails
    """

    template_fields: Sequence[str] = ("config",)
    ui_color = "#e6f2ef"

    def __init__(
        self,
        *,
        config: str | None = None,
        metadata_conn_id: str | None = None,
        lease_timeout: timedelta = LEASE_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.metadata_conn_id = metadata_conn_id
        self.lease_timeout = lease_timeout

    def execute(self, context: Context) -> Any:
        progress = Progress()
        with (
            explained(log, waiting_since(context), self.lease_timeout),
            opened(self.config, self.metadata_conn_id, requester(context), listeners=[progress]) as warehouse,
            progress.repeated(log.info),
        ):
            progress.tasks = warehouse.tasks
            return self.work(warehouse, context)

    def work(self, warehouse: Warehouse, context: Context) -> Any:
        raise NotImplementedError


class Deciding(DeferredOperator, SkipMixin):
    """A task that decides which of its direct successors run.

    Not a branch operator: that would also run whatever follows a chosen task, and a propagate must not cause a
    partial_refresh.
    """

    inherits_from_skipmixin = True

    def skip_others(self, context: Context, chosen: Sequence[str]) -> None:
        self.skip(context["ti"], [task for task in self.downstream_list if task.task_id not in chosen])


class SyncLog(DeferredOperator):
    """Find new commits of all tracked tables. An AssetAlias among its outlets announces the tables that have some."""

    def work(self, warehouse: Warehouse, context: Context) -> dict[str, Any]:
        before = context["ti"].xcom_pull(task_ids=self.task_id, map_indexes=-1, include_prior_dates=True) or {}
        found = warehouse.sync()
        versions = warehouse.positions()
        tables = {table.name for table in warehouse.base_tables()}  # refreshes announce the views
        known: dict[str, int] = before.get("versions", {})
        changed = sorted(name for name in versions.keys() & tables if versions[name] > known.get(name, versions[name]))
        for outlet in self.outlets:
            if isinstance(outlet, AssetAlias):
                for name in changed:
                    context["outlet_events"][outlet].add(asset(name), extra={"version": versions[name]})
        log.info("%d new commits; changed since the last run: %s.", found, ", ".join(changed) or "nothing")
        return {"commits": found, "changed": changed, "versions": versions}


class Maintain(DeferredOperator):
    """One action on a view, named at run time; the operators below each name theirs.

    :param view: the view
    :param action: propagate, partial_refresh, refresh, rebuild, verify, replay
    :param until: changes up to this time count (ISO 8601); empty for now
    :param full: recompute instead of following the changes
    :param history: for replay, rows or changes
    :param since: for replay of changes, the time after which they count
    """

    template_fields: Sequence[str] = ("view", "action", "until", "since", "full", "history", "config")
    operator_extra_links = (OperationLink(),)

    def __init__(
        self,
        *,
        view: str,
        action: str = "refresh",
        until: datetime | str | None = None,
        full: bool | str = False,
        history: str = "rows",
        since: datetime | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.view, self.action, self.until = view, action, until
        self.full, self.history, self.since = full, history, since

    def work(self, warehouse: Warehouse, context: Context) -> dict[str, Any]:
        request = Request.read(
            {
                "action": self.action,
                "until": given(self.until),
                "full": truth(self.full),
                "history": given(self.history) or "rows",
            }
        )
        if request.action == "verify":
            verification = warehouse.verify(self.view)
            log.info("%s", verification)
            return verification.to_dict()
        done = OPERATIONS[request.action](self, warehouse, request).to_dict()
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = {
                    "operation": done["id"],
                    "state": done["state"],
                    "cut": done["to_cut"],
                    "rows_deleted": done["rows_deleted"],
                    "rows_inserted": done["rows_inserted"],
                }
        return done

    def replay(self, warehouse: Warehouse, request: Request) -> Operation:
        """One step that ends at `until`: what changed since `since`, or the rows as they were then."""
        assert request.until is not None  # Request.read has seen to it
        since = given(self.since)
        start = parse_timestamp(since, "since") if since else request.until - timedelta(microseconds=1)
        return warehouse.replay(self.view, start, request.until, request.until - start, request.history)[-1]


OPERATIONS: Mapping[str, Callable[[Maintain, Warehouse, Request], Operation]] = {
    "refresh": lambda task, warehouse, asked: warehouse.refresh(task.view, asked.until, full=asked.full),
    "propagate": lambda task, warehouse, asked: warehouse.propagate(task.view, asked.until, asked.full),
    "partial_refresh": lambda task, warehouse, asked: warehouse.partial_refresh(task.view),
    "rebuild": lambda task, warehouse, asked: warehouse.rebuild(task.view),
    "replay": Maintain.replay,
}
"""What each action does with a view; all but verify are operations."""
assert {*OPERATIONS, "verify"} == ACTIONS.keys(), "the actions of the form are those that are known here"


class Propagate(Maintain):
    """Compute what has changed into the differential tables; readers notice nothing."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(action="propagate", **kwargs)


class PartialRefresh(Maintain):
    """Apply the differential tables to the view: one small commit."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(action="partial_refresh", **kwargs)


class Refresh(Maintain):
    """propagate and partial_refresh: the view then shows the state at `until`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(action="refresh", **kwargs)


class Rebuild(Maintain):
    """Recompute a view and replace its rows in one commit; also after a lost log."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(action="rebuild", **kwargs)


class Verify(Maintain):
    """Compare a view with a recomputation; fails with the first rows that differ."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(action="verify", **kwargs)


class Replay(Maintain):
    """Write the view's rows as of a time, or its changes up to then, into its history table."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(action="replay", **kwargs)


class CreateView(DeferredOperator):
    """Create a view unless the warehouse has one of its name.

    :param view: the view
    :param sql: its query
    :param options: its options, as view files and `Warehouse.create_view` name them
    """

    template_fields: Sequence[str] = ("view", "config")

    def __init__(
        self, *, view: str, sql: str, options: ViewOptions | Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.view, self.sql = view, sql
        self.options = options if isinstance(options, ViewOptions) else ViewOptions.of(options or {})

    def work(self, warehouse: Warehouse, context: Context) -> dict[str, Any]:
        from deferred.maintenance import files

        outcome = files.create(warehouse, ViewFile(self.view, self.sql, self.options, if_not_exists=True))
        log.info("The view %s: %s.", self.view, outcome)
        return {"view": self.view, "created": outcome == files.Outcome.CREATED}


def given(value: Any) -> Any:
    """Returns the value of a templated field; None if it renders to nothing.

    >>> given("None"), given(" "), given("2026-01-01")
    (None, None, '2026-01-01')
    """
    return None if isinstance(value, str) and value.strip() in ("", "None") else value


def truth(value: Any) -> bool:
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)
