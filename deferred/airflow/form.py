"""The trigger form: what a person can request for a view, and which requests are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Param

from deferred.config import parse_timestamp
from deferred.errors import InvalidInputError, not_one_of
from deferred.options import HISTORIES

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
"""The pattern of a date-time: without one, Airflow does not check the value before the run exists."""


@dataclass(frozen=True)
class Request:
    """What is to be done with a view. An object of this class is valid as a whole."""

    action: str
    until: datetime | None = None
    full: bool = False
    history: str = "rows"

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Request:
        """Returns the request that a filled form means.

        >>> Request.read({"action": "rebuild", "until": "2026-01-01"})
        Traceback (most recent call last):
        deferred.errors.InvalidInputError: until works with refresh, propagate, replay, not with rebuild; leave it out.
        """
        action, full = values.get("action", "refresh"), values.get("full") or False
        history = values.get("history", "rows")
        until = parse_timestamp(values["until"], "until") if values.get("until") else None
        for name, value, choices in (
            ("action", action, list(ACTIONS)),
            ("full", full, [True, False]),
            ("history", history, HISTORIES),
        ):
            if value not in choices:
                raise not_one_of(name, value, choices)
        if until is not None and action not in TIMED:
            raise InvalidInputError(f"until works with {', '.join(TIMED)}, not with {action}; leave it out.")
        if until is not None and until > datetime.now(UTC):
            raise InvalidInputError(f"until is {until.isoformat()}, which is in the future; leave it empty for now.")
        if full and action not in COMPUTING:
            raise InvalidInputError(f"full works with {', '.join(COMPUTING)}, not with {action}; switch it off.")
        if action == "replay" and until is None:
            raise InvalidInputError("replay needs until: the time as of which the view is written into its history.")
        return cls(action, until, bool(full), history)


def params() -> dict[str, Param]:
    """Returns the fields of the form, each with its rule; Airflow refuses a value that breaks one before any run."""
    return {
        "action": Param(
            "refresh",
            "What is done with the view.",
            type="string",
            title="Action",
            enum=list(ACTIONS),
            values_display=ACTIONS,
        ),
        "until": Param(
            None,
            "Changes up to this time count; empty for now.",
            type=["null", "string"],
            format="date-time",
            pattern=MOMENT,
            title="Until",
        ),
        "full": Param(
            False,
            "Recompute the view instead of following its changes: slower, the same result.",
            type="boolean",
            title="Full recomputation",
        ),
        "history": Param(
            "rows",
            "What replay writes: the view's rows as of the time, or what changed.",
            type="string",
            title="History of",
            enum=list(HISTORIES),
        ),
    }
