"""The goals, and what was measured of them. Pure: results in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.baselines import REFRESH
from bench.changes import Size
from bench.results import Measurement, Results
from bench.statistics import Spread, number, quotient, ratio, spread


@dataclass(frozen=True)
class Evidence:
    """One measurement and the results that it is from."""

    measurement: Measurement
    results: Results


@dataclass(frozen=True)
class Finding:
    """What was measured of a goal in one place."""

    where: str
    value: Spread
    unit: str
    reached: bool
    limits: str
    commit: str


@dataclass(frozen=True)
class Goal:
    """What is to be reached, in words, and how it is found in the measurements."""

    what: str
    goal: str
    find: Callable[[Sequence[Evidence]], Iterable[Finding]]


def by_age(results: Iterable[Results]) -> list[Evidence]:
    """All measurements, the oldest first."""
    found = (Evidence(measurement, result) for result in results for measurement in result.measurements)
    return sorted(found, key=lambda e: e.measurement.run or e.results.started)


def newest(results: Iterable[Results]) -> list[Evidence]:
    """The newest measurement of each thing."""
    return list({e.measurement.key: e for e in by_age(results)}.values())


def part(size: str) -> float | None:
    """The part of the rows that a size stands for; None where it is a number of rows.

    >>> part("10%"), part("row")
    (0.1, None)
    """
    return float(size.removesuffix("%")) / 100 if size.endswith("%") else None


def limits(measurement: Measurement, side: str) -> str:
    """What the time of a side goes into, by its samples: the largest phase, the driver's part, jobs, what was read."""
    sides = side.split("+")
    words = []
    phases: dict[str, float] = {}
    for name in sides:
        for sample in measurement.sides.get(name, []):
            for phase, seconds in (sample.get("phases") or {}).items():
                phases[f"{name} {phase}"] = phases.get(f"{name} {phase}", 0.0) + seconds
    total = sum(measurement.seconds(side))
    if phases and total:
        largest = max(phases, key=lambda phase: phases[phase])
        words.append(f"{largest} {100 * phases[largest] / total:.0f} %")
    driver = sum(sum(measurement.values(name, "driver_seconds")) for name in sides)
    if total and any(measurement.values(name, "driver_seconds") for name in sides):
        words.append(f"driver {100 * driver / total:.0f} %")
    for metric in ("jobs", "commits", "bytes_read"):
        medians = [s.median for name in sides if (s := spread(measurement.values(name, metric))) is not None]
        if medians and metric == "bytes_read":
            words.append(f"{number(sum(medians) / 1e6)} MB in files read")
        elif medians:
            words.append(f"{sum(medians):.0f} {metric}")
    strategies = {str(s["strategy"]) for name in sides for s in measurement.sides.get(name, []) if s.get("strategy")}
    return ", ".join([*words, *(f"strategy {strategy}" for strategy in sorted(strategies))])


# ---- ways to find a goal


def of_ratio(
    side: str,
    baseline: str,
    at_most: float,
    where: Callable[[Measurement], bool],
) -> Callable[[Sequence[Evidence]], Iterable[Finding]]:
    """How many times of its baseline a side may take."""

    def find(evidence: Sequence[Evidence]) -> Iterable[Finding]:
        for e in _matching(evidence, where):
            value = ratio(e.measurement.seconds(side), e.measurement.seconds(baseline))
            if value is not None:
                yield _finding(e, side, value, "×", value.median <= at_most)

    return find


def of_speed(
    side: str, baseline: str, at_least: float, where: Callable[[Measurement], bool]
) -> Callable[[Sequence[Evidence]], Iterable[Finding]]:
    """How many times faster than its baseline a side must be."""

    def find(evidence: Sequence[Evidence]) -> Iterable[Finding]:
        for e in _matching(evidence, where):
            value = ratio(e.measurement.seconds(baseline), e.measurement.seconds(side))
            if value is not None:
                yield _finding(e, side, value, "× faster", value.median >= at_least)

    return find


def of_value(
    side: str, metric: str, at_most: float, unit: str, where: Callable[[Measurement], bool]
) -> Callable[[Sequence[Evidence]], Iterable[Finding]]:
    """How much of something a side may take by itself."""

    def find(evidence: Sequence[Evidence]) -> Iterable[Finding]:
        for e in _matching(evidence, where):
            value = spread(e.measurement.values(side, metric))
            if value is not None:
                yield _finding(e, side, value, unit, value.median <= at_most)

    return find


def of_others(
    side: str,
    at_most: float,
    where: Callable[[Measurement], bool],
    other: Callable[[Measurement, Measurement], bool],
) -> Callable[[Sequence[Evidence]], Iterable[Finding]]:
    """How many times a side may take of the same side in another measurement of the same run."""

    def find(evidence: Sequence[Evidence]) -> Iterable[Finding]:
        for e in _matching(evidence, where):
            for base in evidence:
                same = base.results is e.results and base.measurement.run == e.measurement.run
                if same and other(e.measurement, base.measurement):
                    value = quotient(e.measurement.seconds(side), base.measurement.seconds(side))
                    if value is not None:
                        yield _finding(e, side, value, "×", value.median <= at_most)

    return find


def of_metric(
    side: str, baseline: str, metric: str, at_most: float, unit: str, where: Callable[[Measurement], bool]
) -> Callable[[Sequence[Evidence]], Iterable[Finding]]:
    """How much of something a side may take of what its baseline takes."""

    def find(evidence: Sequence[Evidence]) -> Iterable[Finding]:
        for e in _matching(evidence, where):
            value = quotient(e.measurement.values(side, metric), e.measurement.values(baseline, metric))
            if value is not None:
                yield _finding(e, side, value, unit, value.median <= at_most)

    return find


def of_memory(driver: str, where: Callable[[Measurement], bool]) -> Callable[[Sequence[Evidence]], Iterable[Finding]]:
    """Whether the work ends, with the right answer, in a driver of so much memory."""

    def find(evidence: Sequence[Evidence]) -> Iterable[Finding]:
        for e in _matching(evidence, where):
            value = spread(e.measurement.seconds(REFRESH))
            if value is not None and e.results.settings.get("spark.driver.memory") == driver:
                yield _finding(e, REFRESH, value, "s", True)

    return find


def _matching(evidence: Sequence[Evidence], where: Callable[[Measurement], bool]) -> list[Evidence]:
    return [e for e in evidence if where(e.measurement)]


def _finding(e: Evidence, side: str, value: Spread, unit: str, reached: bool) -> Finding:
    m = e.measurement
    scale = f", scale {m.scale:g}" if m.scale else ""
    where = f"{m.name}, {m.change}, {m.size}{scale}"
    return Finding(where, value, unit, reached and m.correct is not False, limits(m, side), e.results.commit)


# ---- which measurements


def views(**wanted: object) -> Callable[[Measurement], bool]:
    """Measurements of the suite `views` with these values; a tuple stands for any of its values."""
    return suite("views", **wanted)


def suite(suite: str, /, **wanted: object) -> Callable[[Measurement], bool]:
    def matches(m: Measurement) -> bool:
        return m.suite == suite and all(
            getattr(m, field) in value if isinstance(value, tuple) else getattr(m, field) == value
            for field, value in wanted.items()
        )

    return matches


def _changed(smallest: float, largest: float) -> Callable[[Measurement], bool]:
    def matches(m: Measurement) -> bool:
        size = part(m.size) if m.size != "row" else 0.0
        return m.suite == "views" and m.scale >= 1 and size is not None and smallest <= size <= largest

    return matches


def _at_scale_10(change: str) -> Callable[[Measurement], bool]:
    return views(name="join_group", change=change, size="0.1%", scale=10.0)


def _smaller(large: Measurement, small: Measurement) -> bool:
    """Whether the one measurement is of a tenth of the other's scale, and otherwise the same."""
    return small.key[:4] == large.key[:4] and abs(large.scale - 10 * small.scale) < 1e-9


def _local(elsewhere: Measurement, local: Measurement) -> bool:
    return local.suite == "smallest" and local.key[1:4] == elsewhere.key[1:4]


def _long_log(m: Measurement) -> bool:
    return m.suite == "growth" and m.name == "log" and not m.change.startswith("100 ")


def _short_log(long: Measurement, short: Measurement) -> bool:
    return suite("growth", name="log", scale=long.scale)(short) and short.change.startswith("100 ")


def _recursive(**wanted: object) -> Callable[[Measurement], bool]:
    return lambda m: suite("recursion", **wanted)(m) and m.scale >= 1


def _a_tenth_of_the_edges(many: Measurement, few: Measurement) -> bool:
    """Whether the one measurement is of ten times as many changed edges as the other, and otherwise the same."""
    same = (many.key[:3], many.scale) == (few.key[:3], few.scale)
    return same and Size(many.size).rows(10**6) == 10 * Size(few.size).rows(10**6)


LINEAR = ("select", "join2", "join3", "join_filter")

READ_BY_EDITS = {
    "narrowing": 1.0,
    "widening by 1%": 0.2,
    "another branch": 0.2,
    "widening groups by 1%": 0.2,
    "another aggregate": 0.8,
    "another HAVING": 0.1,
}
"""For each edit of the suite `altering`, what it may read of what a rebuild reads."""

GOALS = (
    Goal(
        "refresh of any case, up to 10 % changed, scale 1 and up, against recomputation",
        "never slower",
        of_ratio(REFRESH, "recompute", 1.0, _changed(0.0, 0.1)),
    ),
    Goal("the same with `auto` at 50 %", "≤ 1.1×", of_ratio(REFRESH, "recompute", 1.1, _changed(0.5, 0.5))),
    Goal(
        "propagate, 0.1 % keys together, scale 10, join + group, against recomputation",
        "≥ 20× faster",
        of_speed(
            "propagate",
            "recompute",
            20,
            _at_scale_10("update_together"),
        ),
    ),
    Goal(
        "propagate, 0.1 % scattered keys, scale 10, the same",
        "≥ 8× faster",
        of_speed(
            "propagate",
            "recompute",
            8,
            _at_scale_10("update_scattered"),
        ),
    ),
    Goal(
        "propagate against the better delta written by hand",
        "≤ 1.2×",
        of_ratio("propagate", "by hand, better", 1.2, lambda m: m.suite == "views" and m.scale >= 1),
    ),
    Goal(
        "propagate against the plain delta written by hand",
        "≤ 0.6×",
        of_ratio("propagate", "by hand", 0.6, lambda m: m.suite == "views" and m.scale >= 1),
    ),
    Goal(
        "partial_refresh against a bare MERGE or append of the same rows into the same table",
        "≤ 1.2×",
        of_ratio("partial_refresh", "bare", 1.2, lambda m: m.suite == "views" and m.scale >= 1),
    ),
    Goal(
        "partial_refresh at scale 10 against recomputation",
        "≥ 30× faster",
        of_speed("partial_refresh", "recompute", 30, views(scale=10.0)),
    ),
    Goal(
        "new orders into a join or select view: refresh against recomputation",
        "≥ 30× faster",
        of_speed(REFRESH, "recompute", 30, lambda m: views(name=LINEAR, change="new_orders")(m) and m.scale >= 1),
    ),
    Goal(
        "the smallest work: propagate",
        "≤ 1.2 s",
        of_value("propagate", "seconds", 1.2, "s", suite("smallest", change=("insert", "update"))),
    ),
    Goal(
        "the smallest work: partial_refresh",
        "≤ 0.8 s",
        of_value("partial_refresh", "seconds", 0.8, "s", suite("smallest", change=("insert", "update"))),
    ),
    Goal(
        "the smallest work: Spark jobs of propagate, select-project or counted",
        "≤ 4",
        of_value("propagate", "jobs", 4, "jobs", suite("smallest", name=("select", "count_sum"))),
    ),
    Goal(
        "a transaction of one insert against the bare write",
        "≤ 1.5×",
        of_ratio("transaction", "bare", 1.5, suite("smallest", name="transaction")),
    ),
    Goal(
        "recursive views at full size, 100 edges changed: refresh against recomputation",
        "≥ 10× faster",
        of_speed(REFRESH, "recompute", 10, _recursive(name=("ancestors", "reached"), size="100rows")),
    ),
    Goal(
        "the same for every change: 1 to 1,000 edges, near the root, in a dense graph",
        "never slower",
        of_ratio(REFRESH, "recompute", 1.0, _recursive()),
    ),
    Goal(
        "the same, ten times as many edges changed: the cost follows the paths that change",
        "≤ 10×",
        of_others(REFRESH, 10, _recursive(), _a_tenth_of_the_edges),
    ),
    Goal(
        "a deletion that the view answers itself, against reading the base tables",
        "faster",
        of_ratio("from the view", "propagate", 1.0, suite("less", name="deletion")),
    ),
    Goal(
        "a star join that reads no base table, against reading them",
        "faster",
        of_ratio("self", "propagate", 1.0, suite("less", name="star")),
    ),
    Goal(
        "a tree join where 95 % of the rows dangle: with good-counters, against without",
        "faster",
        of_ratio("tree", "auto", 1.0, lambda m: suite("trees", name="rare")(m) and m.change != "create"),
    ),
    *(
        Goal(
            f"a definition that changes, {name}: bytes read, of those that a rebuild reads",
            f"≤ {most:g}×",
            of_metric("alter", "rebuild", "column_bytes_read", most, "× of the bytes", suite("altering", name=name)),
        )
        for name, most in READ_BY_EDITS.items()
    ),
    Goal(
        "a definition that changes: seconds, against a rebuild",
        "never slower",
        of_ratio("alter", "rebuild", 1.0, suite("altering")),
    ),
    Goal(
        "propagate, a fixed change, tables 10× larger",
        "≤ 1.5×",
        of_others("propagate", 1.5, suite("growth", name="join_group"), _smaller),
    ),
    Goal(
        "the smallest refresh on a standalone cluster of two workers, against local",
        "≤ 1.5×",
        of_others(REFRESH, 1.5, suite("cluster", change=("insert", "update")), _local),
    ),
    Goal(
        "the smallest refresh through Connect, against local",
        "≤ 1.5×",
        of_others(REFRESH, 1.5, suite("connect", change=("insert", "update")), _local),
    ),
    Goal(
        "create, against CREATE TABLE AS SELECT of the same query",
        "≤ 1.5×",
        of_ratio("create", "create table", 1.5, lambda m: m.suite == "views" and m.scale >= 1),
    ),
    Goal(
        "an insert into a tracked table against an untracked one",
        "≤ 1.05×",
        of_ratio("tracked", "untracked", 1.05, suite("writes", name="insert")),
    ),
    Goal(
        "an update or a delete there",
        "≤ 1.15×",
        of_ratio("tracked", "untracked", 1.15, suite("writes", name=("update", "delete"))),
    ),
    Goal(
        "one such write as a transaction, against the bare write to an untracked table",
        "≤ 1.5×",
        of_ratio("transaction", "untracked", 1.5, suite("writes")),
    ),
    Goal(
        "propagate with nothing to do, from the shell",
        "≤ 0.3 s, no JVM",
        of_value("command", "seconds", 0.3, "s", suite("nothing", name="propagate")),
    ),
    Goal(
        "propagate after a commit that does not matter to the view (TPC-H), from the shell",
        "≤ 0.3 s, no JVM",
        of_value("command", "seconds", 0.3, "s", suite("nothing", name="irrelevant")),
    ),
    Goal(
        "status of 100 views, from the shell",
        "≤ 1 s",
        of_value("command", "seconds", 1.0, "s", suite("nothing", name="status", size="100 views")),
    ),
    Goal(
        "20 views over the same tables, `refresh --all` against one by one",
        "≤ 0.5×",
        of_ratio("together", "one by one", 0.5, suite("many", name="20 views")),
    ),
    Goal(
        "memory: a refresh after 1 % at scale 10 within a driver of 2 GB",
        "it ends",
        of_memory("2g", views(size="1%", scale=10.0)),
    ),
    *(
        Goal(
            f"a table with 100,000 commits and 1,000,000 files, 100 of them new: {side}, against 100 of each",
            "≤ 1.5×",
            of_others(side, 1.5, lambda m: _long_log(m) and m.scale >= 1, _short_log),
        )
        for side in ("status", "sync", "propagate")
    ),
)
