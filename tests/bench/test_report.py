"""The page and the comparison that are made from results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import compare, goals, report, results
from bench.results import Measurement, Results
from bench.suites import altering


def side(*seconds: float, **metrics: Any) -> list[dict[str, Any]]:
    return [{"seconds": value, **metrics} for value in seconds]


def made(*measurements: Measurement, commit: str = "abcdef0123", started: str = "2026-01-01T00:00:00") -> Results:
    machine = {"processor": "a processor", "cores": 2, "memory_gib": 24}
    return Results(1.0, commit, started, machine, {"pyspark": "4"}, measurements=list(measurements))


def refreshed(name: str, recompute: float, propagate: float, apply: float, **more: Any) -> Measurement:
    sides = {
        "recompute": side(recompute, recompute * 1.1),
        "propagate": side(propagate, propagate, phases={"compute": propagate / 2}, jobs=9, driver_seconds=0.1),
        "partial_refresh": side(apply, apply, jobs=3, driver_seconds=0.1),
    }
    return Measurement("views", name, "update_together", "0.1%", 1.0, sides, **{"correct": True, **more})


def test_a_goal_shows_the_worst_of_what_was_measured() -> None:
    page = report.page([made(refreshed("select", 10, 1, 1), refreshed("join2", 10, 15, 5))])
    (line,) = [line for line in page.splitlines() if "refresh of any case" in line]
    assert "1.91 (1.82–2.00) ×, n = 2" in line
    assert "1 of 2" in line
    assert "join2, update_together, 0.1%, scale 1: propagate compute 38 %, driver 1 %, 12 jobs" in line
    assert "abcdef0" in line


def test_what_was_not_measured_is_not_said_to_be_reached() -> None:
    page = report.page([made(refreshed("select", 10, 1, 1))])
    (line,) = [line for line in page.splitlines() if "through Connect" in line]
    assert "| not measured | – |" in line


def test_a_wrong_answer_reaches_no_goal() -> None:
    found = list(goals.GOALS[0].find(goals.newest([made(refreshed("select", 10, 1, 1, correct=False))])))
    assert [finding.reached for finding in found] == [False]
    assert "WRONG" in report.page([made(refreshed("select", 10, 1, 1, correct=False))])


def test_every_edit_of_a_definition_has_a_fraction_of_its_own() -> None:
    assert list(goals.READ_BY_EDITS) == [edit.name for edit in altering.EDITS]


def smallest(suite: str, name: str, **sides: Any) -> Measurement:
    return Measurement(suite, name, "insert", "row", 0, sides, correct=True)


@pytest.mark.parametrize(
    ("words", "measurements", "value"),
    [
        (
            "through Connect",
            lambda: [
                smallest("smallest", "select", propagate=side(1), partial_refresh=side(1)),
                smallest("connect", "select", propagate=side(2), partial_refresh=side(1)),
            ],
            "1.50 ×",
        ),
        ("Spark jobs of propagate", lambda: [smallest("smallest", "select", propagate=side(1, jobs=9))], "9.00 jobs"),
        (
            "tables 10× larger",
            lambda: [
                Measurement("growth", "join_group", "update_together", "15rows", scale, {"propagate": side(seconds)})
                for scale, seconds in ((0.1, 2.0), (1.0, 3.0))
            ],
            "1.50 ×",
        ),
        (
            "1,000,000 files, 100 of them new: sync",
            lambda: [
                Measurement("growth", "log", f"{commits} commits", "files", 1.0, {"sync": side(seconds)})
                for commits, seconds in ((100, 1.0), (100000, 4.0))
            ],
            "4.00 ×",
        ),
    ],
)
def test_goals_that_compare_two_measurements(
    words: str, measurements: Callable[[], list[Measurement]], value: str
) -> None:
    page = report.page([made(*measurements())])
    (line,) = [line for line in page.splitlines() if words in line and "| ≤" in line]
    assert value in line


def test_results_are_kept_and_replaced(tmp_path: Path) -> None:
    result = made()
    result.file = tmp_path / "results.json"
    result.add(refreshed("select", 10, 1, 1))
    result.add(refreshed("join2", 10, 1, 1))
    result.add(refreshed("select", 20, 1, 1))
    loaded = results.load(result.file)
    assert [m.name for m in loaded.measurements] == ["join2", "select"]
    assert loaded.measurements[1].seconds("recompute") == [20, 22]
    assert loaded.measurements[1].seconds("propagate+partial_refresh") == [2, 2]


def test_the_newest_measurement_of_a_thing_counts() -> None:
    old = made(refreshed("select", 10, 1, 1), refreshed("join2", 10, 1, 1), commit="old")
    new = made(refreshed("select", 10, 5, 5), commit="new", started="2026-02-01T00:00:00")
    assert {e.measurement.name: e.results.commit for e in goals.newest([new, old])} == {"select": "new", "join2": "old"}


def test_what_became_slower_is_told() -> None:
    old = made(refreshed("select", 10, 1, 1), commit="old")
    new = made(refreshed("select", 10, 2, 1), commit="new", started="2026-02-01T00:00:00")
    commits, *lines = compare.lines(compare.pairs([new, old]))
    assert commits == "old → new"
    told = {line.split()[6]: line.split()[-1] for line in lines}
    assert told == {"recompute": "1.00×", "propagate": "SLOWER", "partial_refresh": "1.00×"}


def test_each_thing_is_compared_with_its_own_measurement_before() -> None:
    first = made(refreshed("select", 10, 1, 1), refreshed("join2", 10, 1, 1), commit="first")
    second = made(refreshed("select", 10, 1, 1), commit="second", started="2026-02-01T00:00:00")
    third = made(
        refreshed("join2", 10, 1, 1), refreshed("union", 1, 1, 1), commit="third", started="2026-03-01T00:00:00"
    )
    compared = compare.pairs([third, first, second])
    assert {(a.measurement.name, a.results.commit, b.results.commit) for a, b in compared} == {
        ("select", "first", "second"),
        ("join2", "first", "third"),
    }
    assert compare.pairs([third, first, second], scale=0.1) == []


def test_a_run_is_compared_with_itself_alone() -> None:
    found = [
        smallest("smallest", "select", propagate=side(1), partial_refresh=side(1)),
        smallest("connect", "select", propagate=side(2), partial_refresh=side(1)),
    ]
    (goal,) = [goal for goal in goals.GOALS if "through Connect" in goal.what]
    assert len(list(goal.find(goals.newest([made(*found)])))) == 1
    found[0].run = "2026-02-01T00:00:00"
    assert list(goal.find(goals.newest([made(*found)]))) == []
    apart = made(found[0]), made(found[1], commit="other")
    assert list(goal.find(goals.newest(apart))) == []


def test_a_single_recomputation_stands_beside_every_repetition() -> None:
    sides = {"recompute": side(40), "propagate": side(1, 2, 3), "partial_refresh": side(1, 2, 3)}
    found = Measurement("recursion", "ancestors", "delete", "100rows", 1.0, sides, correct=True)
    page = report.page([made(found)])
    (line,) = [line for line in page.splitlines() if "recursive views at full size" in line]
    assert "10.0 (6.67–20.0) × faster, n = 1 | yes" in line


def test_other_suites_show_their_ratios_and_notes() -> None:
    sides = {"self": side(1, 1), "propagate": side(2, 4), "recompute": side(4, 4)}
    page = report.page([made(Measurement("less", "star", "insert", "1%", 1.0, sides, True, note="a note"))])
    (line,) = [line for line in page.splitlines() if line.startswith("| star | insert | 1% | 1 | self |")]
    assert "0.375 (0.250–0.500)× of propagate, 0.250 (0.250–0.250)× of recompute" in line
    assert line.endswith("| right | a note |")


def test_plots_are_drawn(tmp_path: Path) -> None:
    from bench.plots import draw

    sizes = [refreshed("select", 10, 1, 1), refreshed("select", 10, 2, 1)]
    sizes[1].size = "1%"
    evidence = goals.newest([made(*sizes)])
    assert {path.name for path in draw(evidence, tmp_path)} == {"bench-change-size.png", "bench-phases.png"}
