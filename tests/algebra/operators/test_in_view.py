"""E whose rows are all in the view: both its states are read there."""

from __future__ import annotations

import pytest

from deferred.algebra.notation import Labels
from deferred.algebra.operators.in_view import Seen
from tests.algebra.operators.promised import follows, maintained, node_of

VIEWS = {
    "the root is shown": "SELECT line.id, line.sale, line.price, sale.day FROM line JOIN sale ON line.sale = sale.id",
    "under other names": "SELECT line.price AS p, line.sale AS s, line.id AS i, sale.day "
    "FROM line JOIN sale ON line.sale = sale.id WHERE line.price > 5",
}


@pytest.mark.parametrize("name", VIEWS)
def test_it_follows_changes_without_base_tables(name: str) -> None:
    follows(VIEWS[name], Seen)


def test_how_it_is_shown() -> None:
    with maintained(VIEWS["under other names"]) as (_, bound):
        node, labels = node_of(bound.plan, Seen), Labels(bound.plan)
        assert f"{node.strategy.name}: {node.reads(labels)}" == (
            "in the view: the changed rows, and the view's own rows (line.id, sale, price)"
        )
        assert node.notation(labels) == "σ[price > 5](line) ⋉[sale = sale.id] sale"
