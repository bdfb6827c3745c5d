"""⋈ along declared keys and references: what cannot meet is never joined."""

from __future__ import annotations

import pytest

from deferred.algebra.notation import Labels
from deferred.algebra.operators.promised_join import PromisedJoin
from tests.algebra.operators.promised import follows, maintained, node_of

VIEWS = {
    "one reference": "SELECT line.price, sale.day FROM line JOIN sale ON line.sale = sale.id",
    "a chain": "SELECT line.price, shop.state FROM line, sale, shop WHERE line.sale = sale.id AND sale.shop = shop.id",
    "with conditions": "SELECT line.id, sale.day FROM line, sale, shop "
    "WHERE line.sale = sale.id AND sale.shop = shop.id AND shop.state = 7 AND line.price > 5",
    "below groups": "SELECT sale.day, SUM(line.price) AS total FROM line JOIN sale ON line.sale = sale.id GROUP BY sale.day",
}
TERMS = {"one reference": [True, True], "a chain": [True, False, True], "below groups": [True, True]}
"""Whether a change of each input, in the order of the join, can change rows that were there before."""


@pytest.mark.parametrize("name", VIEWS)
def test_it_follows_changes_without_base_tables(name: str) -> None:
    follows(VIEWS[name], PromisedJoin)


@pytest.mark.parametrize("name", TERMS)
def test_an_update_that_nothing_above_reads_has_no_term(name: str) -> None:
    with maintained(VIEWS[name]) as (_, bound):
        join = node_of(bound.plan, PromisedJoin)
        assert isinstance(join, PromisedJoin)
        assert [join.matters(j) for j in range(len(join.inputs))] == TERMS[name]


def test_how_it_is_shown() -> None:
    with maintained(VIEWS["one reference"]) as (_, bound):
        join = node_of(bound.plan, PromisedJoin)
        labels = Labels(bound.plan)
        assert f"{join.strategy.name}: {join.reads(labels)}" == (
            "keys and references: the changed rows of each input, and the other inputs at their keys (sale = id), as "
            "far as keys and references leave something to be read"
        )
        assert join.notation(labels) == "(line ⋉[sale = id] sale) ⋈[sale = id] sale"
