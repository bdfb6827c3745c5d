"""Notices: what happens to views is told to whoever listens: structured logs, OpenLineage, webhooks, a progress line.

A listener that fails is logged and never fails the operation: views matter more than what is said about them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from deferred.config import Settings
from deferred.errors import DeferredError, redacted
from deferred.metadata import utc_now

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds for which an operation waits until a server has taken a notice."""

TIMEOUT = 10.0
"""Seconds that a server has to take it, in the background from then on."""

SILENCE = 60.0
"""Seconds for which a server that took longer is told nothing: one that hangs costs little, however much is done."""

BREAKING = ("D501", "D505")
"""The codes of errors after which a view waits for a rebuild."""


@dataclass(frozen=True)
class Event:
    """Something that happens to a view: an operation starts, enters a phase, is complete, or fails.

    BROKEN says that a view was broken by what was done to another one, or to a table.
    """

    moment: Literal["START", "PHASE", "COMPLETE", "FAIL", "BROKEN"]
    operation: str
    kind: str
    view: str
    location: str
    """Where the view's own rows are."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Where each table is that the view reads."""
    phase: str | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: BaseException | None = None
    expected_seconds: float | None = None
    """What such operations on the view took of late; None where there were none."""
    step: tuple[int, int] | None = None
    """Its place in a longer work, such as a backfill, and the number of the parts of that."""
    is_recorded: bool = True
    """Whether it is an operation of the view's history; making a view, and reading one, are only told to progress."""
    failed_before: bool = False
    """Whether the operation before this one on the same view had failed."""
    at: datetime = field(default_factory=utc_now)

    @property
    def message(self) -> str | None:
        """Why it failed, without secrets."""
        if self.error is None:
            return None
        return redacted(str(self.error) or type(self.error).__name__)

    @property
    def code(self) -> str | None:
        """The code of the error, see docs/ERRORS.md."""
        return self.error.code if isinstance(self.error, DeferredError) else None


Listener = Callable[[Event], None]


def announce(listeners: tuple[Listener, ...], event: Event) -> None:
    """Tell an event to all listeners."""
    for listener in listeners:
        try:
            listener(event)
        except Exception as error:
            log.warning("A notice about %s could not be given: %s", event.view, redacted(str(error)))


def configured(settings: Settings) -> tuple[Listener, ...]:
    """Returns the listeners that the section [notices] of the configuration asks for."""
    made: list[Listener] = []
    given = settings.notices
    if "log" in given:
        made.append(JsonLines(given["log"]))
    if "openlineage" in given:
        made.append(OpenLineage(given["openlineage"], given.get("namespace", "deferred")))
    if "webhook" in given:
        made.append(Webhook(given["webhook"]))
    return tuple(made)


@dataclass(frozen=True)
class JsonLines:
    """Structured logs: one JSON document per line and event."""

    file: str

    def __call__(self, event: Event) -> None:
        if event.is_recorded:
            _append(self.file, _document(event))


@dataclass(frozen=True)
class Webhook:
    """A POST when a view breaks or begins to fail, and when it works again; not again for each further failure."""

    url: str = field(repr=False)

    def __call__(self, event: Event) -> None:
        if not event.is_recorded:
            return
        breaks = event.moment == "BROKEN" or event.code in BREAKING
        if event.moment in ("FAIL", "BROKEN") and isinstance(event.error, Exception):
            if breaks or not event.failed_before:
                _post(self.url, {**_document(event), "event": "broken" if breaks else "failing"})
        elif event.moment == "COMPLETE" and event.failed_before:
            _post(self.url, {**_document(event), "event": "recovered"})


SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
PRODUCER = "urn:deferred"


@dataclass(frozen=True)
class OpenLineage:
    """Run events of OpenLineage, posted to an address or appended to a file."""

    target: str = field(repr=False)
    namespace: str

    def __call__(self, event: Event) -> None:
        if event.moment in ("PHASE", "BROKEN") or not event.is_recorded:
            return
        document = self.run_event(event)
        if urlsplit(self.target).scheme in ("http", "https"):
            _post(self.target, document)
        else:
            _append(self.target, document)

    def run_event(self, event: Event) -> dict[str, Any]:
        """Returns a run event: the job is an operation on a view, its inputs are the tables that the view reads."""
        run: dict[str, Any] = {"runId": str(uuid.UUID(event.operation)), "facets": {}}
        if event.error is not None:
            run["facets"]["errorMessage"] = {
                **_facet("1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"),
                "message": event.message,
                "programmingLanguage": "python",
            }
        output = _dataset(event.location)
        if event.moment == "COMPLETE":
            statistics = _facet(
                "1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
            )
            output["outputFacets"] = {"outputStatistics": {**statistics, "rowCount": event.rows.get("inserted", 0)}}
        return {
            "eventType": event.moment,
            "eventTime": event.at.isoformat(),
            "run": run,
            "job": {"namespace": self.namespace, "name": f"{event.view}.{event.kind}", "facets": {}},
            "inputs": [_dataset(location) for location in event.reads.values()],
            "outputs": [output],
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
        }


def _facet(schema: str) -> dict[str, str]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{schema}"}


def _dataset(location: str) -> dict[str, Any]:
    """A table as OpenLineage names it: by its storage, and its path there.

    >>> _dataset("s3a://bucket/sales")
    {'namespace': 's3a://bucket', 'name': '/sales', 'facets': {}}
    >>> _dataset("/data/sales")
    {'namespace': 'file', 'name': '/data/sales', 'facets': {}}
    """
    parts = urlsplit(location)
    namespace = f"{parts.scheme}://{parts.netloc}" if parts.netloc else "file"
    return {"namespace": namespace, "name": parts.path if parts.netloc else location, "facets": {}}


def _document(event: Event) -> dict[str, Any]:
    return {
        "time": event.at.isoformat(),
        "level": "error" if event.moment in ("FAIL", "BROKEN") else "info",
        "event": event.moment.lower(),
        "operation": event.operation,
        "kind": event.kind,
        "view": event.view,
        "phase": event.phase,
        "rows": dict(event.rows),
        "seconds": dict(event.seconds),
        "code": event.code,
        "message": event.message,
    }


def _append(file: str, document: Mapping[str, Any]) -> None:
    with open(file, "a", encoding="utf-8") as opened:
        opened.write(json.dumps(document, ensure_ascii=False) + "\n")


_silent_until: dict[str, float] = {}
"""When a server that hung is told something again, by its address."""


def _post(url: str, document: Mapping[str, Any]) -> None:
    """Post a document, and wait for the answer, but not for long, nor again and again."""
    if time.monotonic() < _silent_until.get(url, 0.0):
        raise TimeoutError(f"the server has not answered of late, and is left alone for {SILENCE:.0f} s")
    failures: list[Exception] = []

    def post() -> None:
        try:
            _send(url, document)
        except Exception as error:
            failures.append(error)

    posting = threading.Thread(target=post, name="notice", daemon=True)
    posting.start()
    posting.join(PATIENCE)
    if posting.is_alive():
        _silent_until[url] = time.monotonic() + SILENCE
        raise TimeoutError(f"the server has not answered within {PATIENCE:.0f} s")
    for error in failures:
        raise error


def _send(url: str, document: Mapping[str, Any]) -> None:
    from urllib.request import Request, urlopen

    body = json.dumps(document, ensure_ascii=False).encode()
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT):
        pass
