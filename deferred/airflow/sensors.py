"""A sensor that waits until a view is at least as fresh as a time, in the triggerer: it keeps no worker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from deferred.airflow.opening import explained
from deferred.airflow.operators import Context, log
from deferred.airflow.triggers import FreshnessTrigger, stale_views
from deferred.config import parse_timestamp


class FreshnessSensor(BaseOperator):
    """Succeeds when the view shows at least the state at `moment`.

    :param view: the view
    :param moment: ISO 8601, by default the end of the run's data interval
    :param timeout: how long to wait before the task fails
    """

    template_fields: Sequence[str] = ("view", "moment", "config")
    ui_color = "#e6f2ef"

    def __init__(
        self,
        *,
        view: str,
        moment: datetime | str = "{{ dag_run.data_interval_end or dag_run.run_after }}",
        config: str | None = None,
        metadata_conn_id: str | None = None,
        timeout: timedelta = timedelta(hours=24),
        poll_interval: timedelta = timedelta(seconds=5),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.view, self.moment, self.config, self.metadata_conn_id = view, moment, config, metadata_conn_id
        self.timeout, self.poll_interval = timeout, poll_interval

    def execute(self, context: Context) -> dict[str, Any]:
        with explained(log, datetime.now(UTC), timedelta(0)):
            moment = parse_timestamp(self.moment, "moment").isoformat()
            stale = stale_views({self.view: moment}, self.config, self.metadata_conn_id)
        if stale:
            log.info("%s is not as fresh as %s yet.", self.view, moment)
            self.defer(
                trigger=FreshnessTrigger(
                    {self.view: moment},
                    self.config,
                    self.metadata_conn_id,
                    self.poll_interval.total_seconds(),
                    (datetime.now(UTC) + self.timeout).isoformat(),
                ),
                method_name="resume",
                kwargs={"moment": moment},
            )
        return {"view": self.view, "moment": moment}

    def resume(self, context: Context, event: dict[str, Any], moment: str) -> dict[str, Any]:
        if event.get("error"):
            raise AirflowFailException(event["error"])
        if event["stale"]:
            raise AirflowSensorTimeout(
                f"{self.view} is not as fresh as {moment} after {self.timeout}. Is its DAG paused, or does it fail?"
            )
        return {"view": self.view, "moment": moment}
