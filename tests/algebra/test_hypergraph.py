"""Which joins are trees: the two steps against the definition, over all trees there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from random import Random

import pytest

from deferred.algebra.hypergraph import JoinTree, join_tree

SEEDS = range(600)


def random_schemas(seed: int) -> list[set[int]]:
    random = Random(seed)
    attributes = random.choice((3, 4, 5, 6))
    return [{a for a in range(attributes) if random.random() < 0.45} for _ in range(random.choice((1, 2, 3, 4, 5, 5)))]


def trees_of(nodes: int) -> Iterator[list[tuple[int, int]]]:
    """All trees of some nodes: edges that reach every node, one fewer than there are nodes."""
    for edges in combinations(combinations(range(nodes), 2), nodes - 1):
        if connected(range(nodes), edges):
            yield list(edges)


def connected(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> bool:
    reached, waiting = set(nodes[:1]), list(nodes[:1])
    while waiting:
        node = waiting.pop()
        for edge in edges:
            if node in edge:
                (other,) = set(edge) - {node}
                if other in nodes and other not in reached:
                    reached.add(other)
                    waiting.append(other)
    return reached == set(nodes)


def is_qual_tree(schemas: Sequence[set[int]], edges: Sequence[tuple[int, int]]) -> bool:
    """The definition of section 2.2: the nodes that contain an attribute induce a connected subgraph."""
    return all(connected([i for i, schema in enumerate(schemas) if a in schema], edges) for a in set().union(*schemas))


def edges_of(tree: JoinTree) -> list[tuple[int, int]]:
    return [(node, other) for node, found in tree.neighbours.items() for other in found if node < other]


def is_tree(schemas: Sequence[set[int]]) -> bool:
    return not join_tree(schemas).templates


def test_the_two_steps_find_exactly_the_trees() -> None:
    found = {True: 0, False: 0}
    for seed in SEEDS:
        schemas = random_schemas(seed)
        expected = any(is_qual_tree(schemas, edges) for edges in trees_of(len(schemas)))
        assert is_tree(schemas) == expected, schemas
        found[expected] += 1
    assert min(found.values()) > 50, found


def test_a_join_tree_is_a_qual_tree() -> None:
    for seed in SEEDS:
        schemas = random_schemas(seed)
        tree = join_tree(schemas)
        assert sorted(table for tables in tree.nodes.values() for table in tables) == list(range(len(schemas)))
        assert connected(sorted(tree.nodes), edges_of(tree))
        assert len(edges_of(tree)) == len(tree.nodes) - 1
        if not tree.templates:
            assert is_qual_tree(schemas, edges_of(tree)), schemas


FIGURE_2_1 = tuple(map(set, ("AB", "CL", "EM", "CE", "BF", "BDF", "BD", "BC")))
"""Eight relation schemas, each a letter an attribute."""


def test_the_schemas_of_figure_2_1() -> None:
    """A tree; the relations with C are connected in it, as the figure shows. A triangle is none."""
    attributes = sorted(set().union(*FIGURE_2_1))
    schemas = [{attributes.index(a) for a in schema} for schema in FIGURE_2_1]
    tree = join_tree(schemas)
    assert not tree.templates
    assert is_qual_tree(schemas, edges_of(tree))
    of_c = [i for i, schema in enumerate(FIGURE_2_1) if "C" in schema]
    assert of_c == [1, 3, 7]
    assert connected(of_c, edges_of(tree))
    assert not is_tree([{0, 1}, {1, 2}, {2, 0}])


CYCLIC: Mapping[str, tuple[list[set[int]], tuple[tuple[int, ...], ...]]] = {
    "a triangle": ([{0, 1}, {1, 2}, {2, 0}], ((0, 1),)),
    "four in a circle": ([{0, 1}, {1, 2}, {2, 3}, {3, 0}], ((0, 1), (2, 3))),
    "a triangle with a tail": ([{0, 1}, {1, 2}, {2, 0}, {2, 3}, {3}], ((0, 1),)),
    "all pairs of four": ([set(pair) for pair in combinations(range(4), 2)], ((0, 1), (2, 4))),
}


@pytest.mark.parametrize("name", CYCLIC)
def test_templates_make_a_tree_of_what_is_cyclic(name: str) -> None:
    schemas, templates = CYCLIC[name]
    assert not is_tree(schemas)
    assert join_tree(schemas).templates == templates


@pytest.mark.parametrize(("root", "below"), [(0, {1: {1, 2, 3}}), (1, {0: {0}, 2: {2}, 3: {3}}), (3, {1: {0, 1, 2}})])
def test_any_node_may_be_the_root(root: int, below: dict[int, set[int]]) -> None:
    tree = join_tree([{0}, {0, 1, 2}, {1}, {2}])
    assert {child: tree.below(child, root) for child in tree.children(root, None)} == below


def test_tables_that_share_nothing_are_a_tree() -> None:
    for left, right in product((set(), {0}), repeat=2):
        if not left & right:
            assert is_tree([left, right])
            assert len(edges_of(join_tree([left, right]))) == 1
