"""The trigger form: what a person can ask of a view, and what does not go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Param

from deferred.config import parse_timestamp
from deferred.errors import InvalidInputError

ACTIONS = {
    "refresh": "refresh: bring the view up to date",
    "propagate": "propagate: compute the changes, readers notice nothing",
    "partial_refresh": "partial_refresh: show the changes computed so far",
    "rebuild": "rebuild: recompute the view and switch it in",
    "verify": "verify: compare the view with a recomputation",
    "replay": "replay: write the view as of a time into its history table",
}
TIMED = ("refresh", "propagate", "replay")
COMPUTING = ("refresh", "propagate")
MOMENT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"
"""The form of a date-time: Airflow leaves it unchecked without one, until the run exists."""


@dataclass(frozen=True)
class Request:
    """What is to be done with a view: valid as a whole."""

    action: str
    until: datetime | None = None
    full: bool = False
    history: str = "rows"

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Request:
        """The request that a filled form means.

        >>> Request.read({"action": "rebuild", "until": "2026-01-01"})
        Traceback (most recent call last):
        deferred.errors.InvalidInputError: until goes with refresh, propagate, replay, not with rebuild; leave it empty.
        """
        action, full = values.get("action", "refresh"), bool(values.get("full"))
        until = parse_timestamp(values["until"], "until") if values.get("until") else None
        if action not in ACTIONS:
            raise InvalidInputError(f"action={action!r}: it is one of {', '.join(ACTIONS)}.")
        if until is not None and action not in TIMED:
            raise InvalidInputError(f"until goes with {', '.join(TIMED)}, not with {action}; leave it empty.")
        if until is not None and until > datetime.now(UTC):
            raise InvalidInputError(f"until is {until.isoformat()}, which has not come yet; leave it empty for now.")
        if full and action not in COMPUTING:
            raise InvalidInputError(f"full goes with {', '.join(COMPUTING)}, not with {action}; switch it off.")
        if action == "replay" and until is None:
            raise InvalidInputError("replay needs until: the time as of which the view is written into its history.")
        return cls(action, until, full, values.get("history", "rows"))


def params() -> dict[str, Param]:
    """The fields of the form, each with its own rule; Airflow refuses a value that breaks one before any run."""
    return {
        "action": Param("refresh", "What is done with the view.", type="string", title="Action", enum=list(ACTIONS),
                        values_display=ACTIONS),
        "until": Param(None, "The time up to which changes count; empty for now.", type=["null", "string"],
                       format="date-time", pattern=MOMENT, title="Until"),
        "full": Param(False, "Recompute the view instead of following its changes: slower, the same result.",
                      type="boolean", title="Full recomputation"),
        "history": Param("rows", "What replay writes: the view's rows as of the time, or what changed.", type="string",
                         title="History of", enum=["rows", "changes"]),
    }
