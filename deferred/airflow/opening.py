"""Opening the warehouse in a task, by configuration or Connection; the engine's errors in Airflow's terms."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

from deferred import terminal
from deferred.errors import (
    DeferredError,
    LeaseHeldError,
    LeaseLostError,
    MetadataError,
    SparkFailure,
    StorageError,
    TransactionError,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from deferred.maintenance.notices import Listener
    from deferred.maintenance.warehouse import Warehouse

PATIENCE = 10.0
"""How many seconds a task waits for a lease while it occupies a worker; then it is rescheduled."""

RETRY_AFTER = timedelta(seconds=20)
PASSING = (LeaseLostError, MetadataError, SparkFailure, StorageError, TransactionError)
"""Errors that a retry may not meet again; all others fail at once, with what to do about them."""


@contextmanager
def opened(
    config: str | None,
    metadata_conn_id: str | None = None,
    requested_by: str | None = None,
    patience: float = PATIENCE,
    listeners: Sequence[Listener] = (),
) -> Iterator[Warehouse]:
    """The warehouse of a configuration; its metadata database may be an Airflow Connection."""
    from deferred.maintenance.warehouse import Warehouse

    url = metadata_url(BaseHook.get_connection(metadata_conn_id)) if metadata_conn_id else None
    with Warehouse.open(
        configured(config), metadata_url=url, requested_by=requested_by, patience=patience, listeners=listeners
    ) as warehouse:
        yield warehouse


def configured(config: str | None) -> str | None:
    """Returns the configuration file: the environment's, as for every other process, or else the given one."""
    return os.environ.get("DEFERRED_CONFIG") or config


def metadata_url(connection: Connection) -> str:
    """Returns the URL of the metadata database of a Connection: postgres, or sqlite with the file as its host."""
    if connection.conn_type == "sqlite":
        return f"sqlite:///{connection.host or connection.schema}"
    login = quote(connection.login or "", safe="")
    password = f":{quote(connection.password, safe='')}" if connection.password else ""
    port = f":{connection.port}" if connection.port else ""
    return f"postgresql://{login}{password}@{connection.host}{port}/{connection.schema or ''}"


@contextmanager
def explained(log: logging.Logger, waiting_since: datetime, lease_timeout: timedelta) -> Iterator[None]:
    """Turns errors of the engine into Airflow's: the message first in the task log, retries only where they can help.

    When another process holds the lease, the task is rescheduled, which is neither a failure nor a retry.
    """
    try:
        yield
    except LeaseHeldError as error:
        if datetime.now(UTC) - waiting_since > lease_timeout:
            log.error("%s", terminal.explained(error))
            raise AirflowFailException(f"{error} Waited for {lease_timeout}.") from None
        log.info("%s This task runs again in %d seconds.", error, RETRY_AFTER.total_seconds())
        raise AirflowRescheduleException(datetime.now(UTC) + RETRY_AFTER) from None
    except PASSING as error:
        log.error("%s", terminal.explained(error))
        raise
    except DeferredError as error:
        log.error("%s", terminal.explained(error))
        raise AirflowFailException(str(error)) from None


def waiting_since(context: Any) -> datetime:
    """Returns when the task began to wait for a lease: its first reschedule, or now."""
    first: datetime | None = context["ti"].get_first_reschedule_date(context)
    return first or datetime.now(UTC)


def requester(context: Any) -> str:
    """Returns who requested the run, for the record of the operation: the person or the kind of run, and its id."""
    run = context["dag_run"]
    who = run.triggering_user_name or f"airflow {getattr(run.run_type, 'value', run.run_type)}"
    return f"{who} ({run.dag_id}, {run.run_id})"
