"""E ⋉ F along declared references."""

from __future__ import annotations

import pytest

from deferred.algebra.notation import Labels
from deferred.algebra.operators.referring import Referring
from tests.algebra.operators.promised import follows, maintained, node_of

VIEWS = {
    "rows of a part of the shops": "SELECT line.price, sale.day, shop.state FROM line, sale, shop "
    "WHERE line.sale = sale.id AND sale.shop = shop.id AND shop.state = 7",
    "a part of a part": "SELECT line.id, sale.id AS of, shop.id AS at FROM line, sale, shop "
    "WHERE line.sale = sale.id AND sale.shop = shop.id AND shop.state = 7 AND sale.id < 5",
}


@pytest.mark.parametrize("name", VIEWS)
def test_it_follows_changes_without_base_tables(name: str) -> None:
    follows(VIEWS[name], Referring)


def test_how_it_is_shown() -> None:
    with maintained(VIEWS["rows of a part of the shops"]) as (_, bound):
        node, labels = node_of(bound.plan, Referring), Labels(bound.plan)
        assert f"{node.strategy.name}: {node.reads(labels)}" == (
            "keys and references: the changed rows, and the kept rows that they refer to (sale = sale.id)"
        )
        assert node.notation(labels) == "line ⋉[sale = sale.id] (sale ⋉[shop = shop.id] σ[state = 7](shop))"
