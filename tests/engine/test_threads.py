"""Several threads on one warehouse: writers, refreshes of the same and of different views, an alteration, readers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

VIEWS = {
    "joined": "SELECT r.a, t.d FROM r JOIN t ON r.a = t.a",
    "grouped": "SELECT a, COUNT(*) AS n, SUM(b) AS b FROM r GROUP BY a",
}
ALTERED = "SELECT a, COUNT(*) AS n, SUM(b) AS b FROM r WHERE a > 1 GROUP BY a"


def test_threads_share_a_warehouse(tables: Any) -> None:
    """Whatever their order, each view has the rows of its query in the end, and no reader sees half of a transaction."""
    wh = tables
    for name, query in VIEWS.items():
        wh.create_view(name, query)

    def write(number: int) -> None:
        with wh.transaction() as tx:
            tx.insert("r", [(number, number, "new")])
            tx.insert("t", [(number, 1)])

    def refresh(view: str) -> None:
        assert wh.refresh(view).state in ("succeeded", "nothing")

    def alter(view: str) -> None:
        assert wh.alter_view(view, ALTERED).state == "succeeded"

    def read(_: int) -> None:
        pairs = wh.read("joined", fresh=True, where="a >= 10").collect()
        assert all(pair["a"] in (10, 11) for pair in pairs)
        assert len(pairs) == len({pair["a"] for pair in pairs})

    with ThreadPoolExecutor(6) as threads:
        running = [
            *(threads.submit(write, number) for number in (10, 11)),
            *(threads.submit(refresh, view) for view in ("joined", "grouped", "grouped")),
            threads.submit(alter, "grouped"),
            threads.submit(read, 0),
        ]
        for done in running:
            done.result()
    for view in VIEWS:
        wh.refresh(view)
        assert wh.verify(view).holds
    assert {row["a"] for row in wh.read("joined").collect()} == {1, 2, 10, 11}
    assert wh.find_view("grouped").sql == ALTERED
    assert {row["a"] for row in wh.read("grouped").collect()} == {2, 10, 11}
