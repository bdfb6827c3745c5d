"""Counting: the examples of Gupta, Mumick, Subrahmanian 1993 for views that are not recursive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from tests.fuzz.duck import Database, Row, added

HOP = "SELECT l.s, r.d FROM link l JOIN link r ON l.d = r.s"
TRI_HOP = "SELECT h.s, l.d FROM ({hop}) h JOIN link l ON h.d = l.s"
ONLY_TRI_HOP = (
    f"SELECT t.s, t.d FROM ({TRI_HOP.format(hop=HOP)}) t "
    f"WHERE NOT EXISTS (SELECT 1 FROM ({HOP}) h WHERE h.s = t.s AND h.d = t.d)"
)
MIN_COST_HOP = (
    "SELECT s, d, MIN(cost) AS m FROM "
    "(SELECT l.s, r.d, l.cost + r.cost AS cost FROM link l JOIN link r ON l.d = r.s) h GROUP BY s, d"
)


def pairs(text: str) -> Counter[Row]:
    """Tuples as the paper writes them.

    >>> pairs("ab ac*2")
    Counter({('a', 'c'): 2, ('a', 'b'): 1})
    """
    found: Counter[Row] = Counter()
    for word in text.split():
        tuple_, _, count = word.partition("*")
        found[tuple(tuple_)] += int(count or 1)
    return found


@pytest.fixture
def db() -> Iterator[Database]:
    database = Database({"link": (("s", "string"), ("d", "string"))})
    yield database
    database.close()


def changes(
    db: Database, views: Mapping[str, str], links: Counter[Row], change: Counter[Row]
) -> dict[str, tuple[Counter[Row], Counter[Row]]]:
    """Each view before a change of the links, and what its delta program says of the change."""
    found = {}
    for name, sql in views.items():
        db.replace("link", links)
        bound, before = db.bind(sql), db.query(sql)
        db.keep(bound)
        db.log("link", change)
        db.replace("link", added(links, change))
        delta = db.delta(bound, ["link"])
        assert added(before, delta) == db.query(sql), name
        found[name] = (before, delta)
    return found


def test_example_1_1_a_hop_with_two_derivations_stays(db: Database) -> None:
    views = {"bag": HOP, "set": HOP.replace("SELECT", "SELECT DISTINCT")}
    found = changes(db, views, pairs("ab bc be ad dc"), pairs("ab*-1"))
    assert found == {
        "bag": (pairs("ac*2 ae"), pairs("ac*-1 ae*-1")),
        "set": (pairs("ac ae"), pairs("ae*-1")),
    }


LINKS, CHANGE = pairs("ab ad dc bc ch fg"), pairs("ab*-1 df af")


def test_example_4_2_counts(db: Database) -> None:
    found = changes(db, {"hop": HOP, "tri_hop": TRI_HOP.format(hop=HOP)}, LINKS, CHANGE)
    assert found == {
        "hop": (pairs("ac*2 dh bh"), pairs("ac*-1 af ag dg")),
        "tri_hop": (pairs("ah*2"), pairs("ah*-1 ag")),
    }


def test_example_5_1_a_set_changes_where_a_count_becomes_zero(db: Database) -> None:
    """(a, c) keeps a derivation, so nothing goes on to tri_hop."""
    hop = HOP.replace("SELECT", "SELECT DISTINCT")
    found = changes(db, {"hop": hop, "tri_hop": TRI_HOP.format(hop=hop)}, LINKS, CHANGE)
    assert found == {
        "hop": (pairs("ac dh bh"), pairs("af ag dg")),
        "tri_hop": (pairs("ah"), pairs("ag")),
    }


def test_example_6_1_negation_asks_whether_a_count_is_zero(db: Database) -> None:
    """(a, d) is a hop twice, and without (e, d) once: that makes no difference. Without (f, d), too, it is none."""
    links = pairs("ab ae af ag bc cd ck ed fd gh hk")
    views = {"hop": HOP, "tri_hop": TRI_HOP.format(hop=HOP), "only_tri_hop": ONLY_TRI_HOP}
    found = changes(db, views, links, pairs("ed*-1"))
    assert {name: before for name, (before, _) in found.items()} == {
        "hop": pairs("ac ad*2 ah bd bk gk"),
        "tri_hop": pairs("ad ak*2"),
        "only_tri_hop": pairs("ak*2"),
    }
    assert (found["hop"][1], found["only_tri_hop"][1]) == (pairs("ad*-1"), Counter())
    found = changes(db, {"only_tri_hop": ONLY_TRI_HOP}, links, pairs("ed*-1 fd*-1"))
    assert found["only_tri_hop"] == (pairs("ak*2"), pairs("ad"))


def test_example_6_2_a_hop_changes_the_least_cost_if_it_costs_less() -> None:
    """hop(a, b, 10) is inserted by way of e: it changes a least cost of 12, and not one of 9."""
    db = Database({"link": (("s", "string"), ("d", "string"), ("cost", "int"))})
    for cost, change in ((12, {("a", "b", 12): -1, ("a", "b", 10): 1}), (9, {})):
        links: Counter[Row] = Counter([("a", "c", 5), ("c", "b", cost - 5), ("a", "e", 4)])
        found = changes(db, {"least": MIN_COST_HOP}, links, Counter({("e", "b", 6): 1}))
        assert found["least"] == (Counter([("a", "b", cost)]), change)
    db.close()
