"""What the command line prints: tables, JSON, errors; and hiding what Spark itself writes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from deferred.config import parse_timestamp
from deferred.errors import ConfigurationError, DeferredError, SparkFailure
from deferred.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console, Group
    from rich.table import Table
    from rich.tree import Tree

    from deferred.maintenance.lineage import Lineage
    from deferred.maintenance.operation import Operation

# ---- hiding Spark's own output


class _Noise:
    """Standard output and error sent to a file, also those of processes that are started in the meantime."""

    def __init__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._sink = tempfile.TemporaryFile()  # noqa: SIM115
        self._saved = os.dup(1), os.dup(2)
        self._hide()

    def _hide(self) -> None:
        os.dup2(self._sink.fileno(), 1)
        os.dup2(self._sink.fileno(), 2)

    def _restore(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(self._saved[0], 1)
        os.dup2(self._saved[1], 2)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        self._restore()
        try:
            yield
        finally:
            sys.stdout.flush()
            self._hide()

    def close(self) -> None:
        self._restore()
        for descriptor in self._saved:
            os.close(descriptor)
        self._sink.close()


class _Nothing:
    """In place of _Noise when everything is to be shown."""

    def lifted(self) -> nullcontext[None]:
        return nullcontext()


@contextmanager
def quiet(progress: Progress) -> Iterator[_Noise | _Nothing]:
    """Hide output that is not ours, and show what is being done: one live line in a terminal, plain lines elsewhere."""
    if os.environ.get("DEFERRED_DEBUG"):
        yield _Nothing()
        return
    from rich.console import Console

    with os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1) as terminal:
        noise = _Noise()
        console = Console(file=terminal)
        try:
            with _line(console, progress):
                yield noise
        except SparkFailure as error:
            raise SparkFailure(
                f"{error} Set DEFERRED_DEBUG=1 in the environment to see Spark's own messages."
            ) from error
        finally:
            noise.close()


def _line(console: Console, progress: Progress) -> AbstractContextManager[Any]:
    if not progress.doing or invocation.quiet:
        return nullcontext()
    if not console.is_terminal:
        progress.say = lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)
        return progress.repeated(progress.say)
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")

    def shown() -> Text:
        turning = spinner.render(console.get_time())
        assert isinstance(turning, Text)
        return Text.assemble(turning, " ", "\n  ".join(progress.lines()), no_wrap=True, overflow="ellipsis")

    return Live(console=console, get_renderable=shown, transient=True, redirect_stdout=False, redirect_stderr=False)


@dataclass
class Invocation:
    """What the command line says about all output."""

    quiet: bool = False


invocation = Invocation()


def stop(progress: Progress) -> NoReturn:
    """Say in which state Ctrl-C has left things, and exit as a shell expects it."""
    complain(progress.stopped())
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        # Work on other views may wait for long, and Python would wait for it. It is safe to kill at any moment.
        sys.stdout.flush()
        os._exit(130)
    sys.exit(130)


# ---- printing


@dataclass(frozen=True)
class Rows:
    """Rows of a DataFrame, as many as were asked for."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool

    @classmethod
    def of(cls, frame: DataFrame, limit: int, own: str | None = None) -> Rows:
        """Returns the first rows; `own` is the text of the user that asks for them."""
        from deferred.spark.statements import translated

        with translated(own):
            found = [tuple(row) for row in (frame.limit(limit + 1) if limit else frame).collect()]
        shown = found[:limit] if limit else found
        return cls(_distinct(frame.columns), shown, len(found) > len(shown))

    def document(self) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "more": self.more,
        }

    def signed(self, deleted: str, inserted: str) -> Rows:
        """Returns the rows for people: the sign first, then the count, then the row."""
        rows = [(deleted if row[-2] == "delete" else inserted, row[-1], *row[:-2]) for row in self.rows]
        return Rows(("", "count", *self.columns[:-2]), rows, self.more)

    def show(self, title: str | None = None) -> None:
        table(title, self.columns, self.rows)
        if self.more:
            say(f"… more than {plural(len(self.rows), 'row')}; --limit 0 shows all.")


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Returns column names as keys: a repeated one gets a number.

    >>> _distinct(["a", "b", "a"])
    ('a', 'b', 'a_2')
    """
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return tuple(result)


def answer(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print what a command has found out: as JSON, or for people."""
    if as_json:
        say(json.dumps(plain(value), ensure_ascii=False, indent=2))
    else:
        show()


def plain(value: Any) -> Any:
    """Returns a value in terms of JSON; what JSON does not have becomes text.

    >>> plain({"a": Decimal("1.50"), "b": (float("nan"), timedelta(seconds=5))})
    {'a': '1.50', 'b': ['nan', 5.0]}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if hasattr(value, "asDict"):
        return plain(value.asDict())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value)


def _console() -> Console:
    from rich.console import Console

    # A pipe has no width; cutting columns there would lose data.
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)


def say(text: str) -> None:
    """Print a line to standard output."""
    print(text, flush=True)


def write_file(file: Path, text: str) -> None:
    """Write what is shown to a file instead: whoever reads it meanwhile sees the old text or the new one, whole."""
    try:
        if file.exists() and not file.is_file():  # a pipe, /dev/stdout
            file.write_text(text, encoding="utf-8")
            return
        target = file.resolve()
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}. Name another file.") from None


def read_file(file: Path) -> str:
    """Returns the text of a file that is given."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The file {file} cannot be read as text: {error}.") from None


def complain(text: str) -> None:
    """Print a line to standard error."""
    print(f"deferred: {text}", file=sys.stderr, flush=True)


def fail(error: DeferredError, as_json: bool) -> NoReturn:
    """Print an error, and why it is one, and exit with 1."""
    if as_json:
        say(json.dumps({"error": error.to_dict()}, ensure_ascii=False))
    complain(explained(error))
    if type(error) is not DeferredError:
        print(f"  Why: {error.why}", file=sys.stderr, flush=True)
    sys.exit(1)


def explained(error: DeferredError) -> str:
    """Returns an error for people: its code, its message, and its place in the SQL."""
    place = "".join(f"\n  {line}" for line in error.shown_place.splitlines())
    return f"[{error.code}] {error}{place}"


def table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; numbers are aligned to the right."""
    _console().print(_table(title, columns, rows))
    if not rows:
        say("(none)")


def _table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for position, name in enumerate(columns):
        numeric = rows and all(
            isinstance(row[position], (int, float, Decimal)) or row[position] is None for row in rows
        )
        shown.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(_cell(value), style=COLOURS.get(value, "") if value else "") for value in row))
    return shown


COLOURS: dict[Any, str] = {"fresh": "green", "late": "yellow", "failing": "red", "broken": "bold red", "failed": "red"}
"""Words that a terminal shows in colour."""


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, (str, int, float, Decimal)) else str(plain(value))


def pairs(title: str, values: dict[str, Any]) -> None:
    """Print names and values, one pair per line."""
    say(title)
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        say(f"  {name:<{width}}  {value}")


def plural(number: int, what: str) -> str:
    """Returns a number with its noun.

    >>> plural(1, "row"), plural(2, "row")
    ('1 row', '2 rows')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def moment(value: str | datetime | None) -> str:
    """Returns a moment for people: to the second, in UTC."""
    if value is None:
        return "never"
    return f"{parse_timestamp(value):%Y-%m-%d %H:%M:%S}"


def span(seconds: float | None) -> str:
    """Returns a time span for people.

    >>> span(59), span(3700), span(200_000)
    ('59s', '1h 1m', '2d 7h')
    """
    if seconds is None:
        return ""
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number}{unit}" for number, unit in parts[:2])


def status(views: Sequence[dict[str, Any]], tables: Sequence[str]) -> None:
    """Print every view with its state, and the names of the tracked tables."""
    _console().print(_status(views, tables))


def _status(views: Sequence[dict[str, Any]], tables: Sequence[str]) -> Group:
    from rich.console import Group

    rows = [
        (
            view["name"],
            view["health"],
            view["scenario"],
            moment(view["shown"]),
            "" if view["fresh"] else span(view["stale_seconds"]) or "?",
            *("?" if view[of] is None else view[of] for of in ("unseen_commits", "unseen_rows", "pending_commits")),
            view["pending_batches"],
            until(view["next_due"]),
            seconds(view["downtime_seconds"]),
        )
        for view in views
    ]
    columns = (
        *("view", "health", "scenario", "shows (UTC)", "stale for", "commits behind", "rows behind"),
        *("to propagate", "to apply", "next due", "last downtime"),
    )
    lines = [f"{view['name']}: {said}" for view in views for said in _remarks(view)]
    tracked = f"Tracked tables: {', '.join(tables) or 'none'}"
    return Group(_table(None, columns, rows), *([] if rows else ["(none)"]), *lines, tracked)


def _remarks(view: dict[str, Any]) -> list[str]:
    """What there is to say of a view beside its line."""
    said = [view[name] for name in ("problem", "failure") if view.get(name)]
    if view.get("irrelevant_commits"):
        said.append(f"{view['irrelevant_commits']} of the last commits propagated did not matter to it")
    return said


def view_status(view: dict[str, Any], reads: Lineage, read_by: Lineage) -> None:
    """Print one view: everything that is known of it, and its lineage as trees."""
    shown = {
        "health": view["health"],
        "scenario": view["scenario"],
        "shows": f"{moment(view['shown'])} UTC",
        "propagated to": f"{moment(view['propagated'])} UTC",
        "stale for": "not stale" if view["fresh"] else span(view["stale_seconds"]) or "not known",
        "behind": f"{_commits(view['unseen_commits'])}, "
        + ("rows not known" if view["unseen_rows"] is None else f"about {plural(view['unseen_rows'], 'row')}"),
        "to propagate": _commits(view["pending_commits"]),
        "to apply": plural(view["pending_batches"], "batch").replace("batchs", "batches"),
        "next due": until(view["next_due"]) or "by hand",
        "last downtime": seconds(view["downtime_seconds"]) or "none yet",
        "location": view["location"],
    }
    pairs(view["name"], shown)
    for said in _remarks(view):
        say(f"  {said}")
    console = _console()
    console.print(_tree(reads, f"{view['name']} reads"))
    if read_by.beyond:
        console.print(_tree(read_by, f"{view['name']} is read by"))


def _commits(number: int | None) -> str:
    return "commits not known" if number is None else plural(number, "commit")


def _tree(lineage: Lineage, label: str) -> Tree:
    from rich.tree import Tree

    tree = Tree(label)
    for part in lineage.beyond:
        tree.add(_tree(part, f"{part.name} ({part.health or 'table'}){' (above)' if part.is_above else ''}"))
    return tree


def watch(look: Callable[[], tuple[Sequence[dict[str, Any]], Sequence[str]]], every: float) -> None:
    """Show the status again and again, in place on a terminal, until Ctrl-C."""
    from rich.live import Live

    console = _console()
    try:
        if not console.is_terminal:
            while True:
                console.print(_status(*look()))
                time.sleep(every)
        # Not refreshed by itself: what is printed while a warehouse is open is hidden.
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(_status(*look()), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return


def seconds(value: float | None) -> str:
    """Returns seconds for people.

    >>> seconds(0.052), seconds(None)
    ('0.05 s', '')
    """
    return "" if value is None else f"{value:.2f} s"


def until(value: str | None, now: datetime | None = None) -> str:
    """Returns how long it is until a moment.

    >>> until("2026-01-01T01:30:00+00:00", datetime(2026, 1, 1, tzinfo=UTC)), until(None)
    ('in 1h 30m', '')
    """
    if value is None:
        return ""
    left = parse_timestamp(value) - (now or datetime.now(UTC))
    return f"in {span(max(0.0, left.total_seconds()))}"


BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """Returns numbers as a line of little bars.

    >>> sparkline([0, 1, 2, 7]), sparkline([3, 3]), sparkline([])
    ('▁▂▃█', '██', '')
    """
    highest = max(values, default=0)
    return "".join(BLOCKS[round(value / highest * 7)] if highest else BLOCKS[0] for value in values)


def history(done: Sequence[Operation]) -> None:
    """Print operations, newest first, and how the seconds and rows of each kind went over time."""
    longest = max((op.seconds for op in done), default=0.0)
    rows = [
        (
            moment(op.started_at),
            op.view,
            op.kind,
            op.state,
            op.rows_read,
            op.rows_deleted,
            op.rows_inserted,
            f"{op.seconds:7.2f} {'█' * round(12 * op.seconds / longest) if longest else ''}",
            ", ".join(f"{name} {taken:.2f}" for name, taken in op.phases.items()),
            op.message or " · ".join([op.strategy or "", *recursions(op)]).strip(" ·"),
        )
        for op in done
    ]
    table(
        None,
        ("started (UTC)", "view", "operation", "outcome", "rows read", "deleted", "inserted", "seconds", "phases", ""),
        rows,
    )
    for (view, kind), oldest_first in _by_kind(done).items():
        if len(oldest_first) > 1:
            taken, read = [op.seconds for op in oldest_first], [op.rows_read for op in oldest_first]
            say(
                f"{view} {kind}: seconds {sparkline(taken)} up to {max(taken):.2f}, "
                f"rows {sparkline(read)} up to {max(read)}"
            )


def recursions(done: Operation) -> list[str]:
    """Returns what the maintenance of each recursion did, for people.

    >>> from types import SimpleNamespace
    >>> recursions(SimpleNamespace(recursions={"chain": {"rounds": 3, "overestimated": 9, "rederived": 7}}))
    ['chain: 3 rounds, 9 overestimated, 7 rederived']
    """
    told = done.recursions.items()
    return [f"{name}: {', '.join(f'{number} {what}' for what, number in figures.items())}" for name, figures in told]


def _by_kind(done: Sequence[Operation]) -> dict[tuple[str | None, str], list[Operation]]:
    found: dict[tuple[str | None, str], list[Operation]] = {}
    for op in reversed(done):
        if op.state == "succeeded":
            found.setdefault((op.view, op.kind), []).append(op)
    return found


def operations(done: Sequence[Operation]) -> None:
    """Print operations, one per line."""
    rows = [
        (
            op.view,
            op.kind,
            op.state,
            moment(_timestamp(op.to_cut)) if op.to_cut else "",
            op.rows_read,
            op.rows_deleted,
            op.rows_inserted,
            f"{op.seconds:.2f}",
            op.strategy or "",
            op.message or "",
        )
        for op in done
    ]
    table(
        None,
        ("view", "operation", "outcome", "at (UTC)", "rows read", "deleted", "inserted", "seconds", "strategy", ""),
        rows,
    )
    for warning in dict.fromkeys(warning for op in done for warning in op.warnings):
        complain(warning)


def _timestamp(cut: dict[str, Any]) -> str:
    return str(cut["timestamp"])


def step(number: int, scene: Any) -> None:
    """Print one step of the demo."""
    _console().print(f"{number}. {scene.title}", style="bold", soft_wrap=True)
    if scene.columns:
        table(None, scene.columns, scene.rows)
    if scene.bars:
        say("")
        bars(scene.bars)
    say("")


def bars(values: Sequence[tuple[str, float]], width: int = 60) -> None:
    """Print a bar for each value, as long as the value is beside the greatest one.

    >>> bars([("write", 0.5), ("refresh", 2.0)], width=8)
    write    ██ 0.50
    refresh  ████████ 2.00
    """
    longest = max((value for _, value in values), default=0.0) or 1.0
    names = max((len(name) for name, _ in values), default=0)
    for name, value in values:
        say(f"{name:<{names}}  {'█' * round(width * value / longest) or '▏'} {value:.2f}")
