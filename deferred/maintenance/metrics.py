"""Metrics in the OpenMetrics text format, for Prometheus and what reads its format. Starts no Spark.

Gauges say how each view is now. Counters are sums over the records of operations; `gc` removes old records, which a
reader of counters takes for a restart. There are no other types: the older text format of Prometheus, which
node_exporter reads from files, knows no stateset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from deferred.config import parse_timestamp
from deferred.log.context import Context
from deferred.maintenance.status import Health, status

Labels = Mapping[str, str]


@dataclass
class Family:
    """One metric: its name, type, unit and meaning, and a sample for each set of labels."""

    name: str
    kind: str
    help: str
    unit: str = ""
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        """Adds a sample; none where the value is not known."""
        if value is not None:
            self.samples.append((labels, value))

    def lines(self) -> Iterator[str]:
        """The family as text.

        >>> lag = Family("lag_seconds", "gauge", "How stale.", "seconds")
        >>> lag.add(1.5, view="a")
        >>> list(lag.lines())[-1]
        'lag_seconds{view="a"} 1.5'
        """
        yield f"# TYPE {self.name} {self.kind}"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}"
        yield f"# HELP {self.name} {_escaped(self.help)}"
        suffix = "_total" if self.kind == "counter" else ""
        for labels, value in self.samples:
            listed = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{suffix}{{{listed}}} {value:.15g}"


def metrics(context: Context) -> str:
    """Returns all metrics as one text."""
    lines = [line for family in (*_gauges(status(context)), *_counters(context)) for line in family.lines()]
    return "\n".join([*lines, "# EOF", ""])


def _gauges(views: Iterable[Mapping[str, Any]]) -> list[Family]:
    lag = Family("deferred_view_lag_seconds", "gauge", "For how long the view has not been up to date.", "seconds")
    commits = Family("deferred_view_unseen_commits", "gauge", "Commits of its tables that the view does not show.")
    rows = Family("deferred_view_unseen_rows", "gauge", "About how many changed rows the view does not show.")
    pending = Family("deferred_view_pending_commits", "gauge", "Commits that are not propagated yet.")
    batches = Family("deferred_view_pending_batches", "gauge", "Differential batches that are not applied yet.")
    downtime = Family("deferred_view_downtime_seconds", "gauge", "Seconds of the last commit to the view.", "seconds")
    due = Family("deferred_view_next_due_timestamp_seconds", "gauge", "When the view is next due.", "seconds")
    shown = Family("deferred_view_shown_timestamp_seconds", "gauge", "The time of the state it shows.", "seconds")
    propagated = Family(
        "deferred_view_propagated_timestamp_seconds", "gauge", "The time up to which its log was read.", "seconds"
    )
    unreadable = Family("deferred_view_unreadable_tables", "gauge", "Tables of the view that cannot be read.")
    health = Family("deferred_view_health", "gauge", "What is worst about the view: 1 for that, 0 for the others.")
    for view in views:
        name = view["name"]
        lag.add(view["stale_seconds"], view=name)
        commits.add(view["unseen_commits"], view=name)
        rows.add(view["unseen_rows"], view=name)
        pending.add(view["pending_commits"], view=name)
        batches.add(view["pending_batches"], view=name)
        downtime.add(view["downtime_seconds"], view=name)
        due.add(_epoch(view["next_due"]), view=name)
        shown.add(_epoch(view["shown"]), view=name)
        propagated.add(_epoch(view["propagated"]), view=name)
        unreadable.add(len(view["unreadable"]), view=name)
        for state in get_args(Health):
            health.add(float(view["health"] == state), view=name, deferred_view_health=state)
    return [lag, commits, rows, pending, batches, downtime, due, shown, propagated, unreadable, health]


def _counters(context: Context) -> list[Family]:
    done = Family(
        "deferred_operations", "counter", "Operations by how they ended: succeeded, nothing, failed, running."
    )
    seconds = Family("deferred_operation_seconds", "counter", "Seconds of operations by phase.", "seconds")
    rows = Family("deferred_operation_rows", "counter", "Rows that operations have read, deleted and inserted.")
    for total in context.metadata.operations.totals():
        of = {"view": total.view, "operation": total.kind}
        done.add(total.number, **of, outcome=total.state)
        if total.state == "succeeded":
            for change in ("read", "deleted", "inserted"):
                rows.add(getattr(total, f"rows_{change}"), **of, change=change)
            for phase, taken in sorted(total.seconds.items()):
                seconds.add(round(taken, 3), **of, phase=phase)
    return [done, seconds, rows]


def _epoch(moment: str | None) -> float | None:
    return None if moment is None else parse_timestamp(moment).timestamp()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
