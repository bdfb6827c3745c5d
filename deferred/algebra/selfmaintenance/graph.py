"""The join graph of a view: what depends on what, what is needed for what (Quass et al. 1996, sections 3 and B)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Edge:
    """e(Rᵢ, Rⱼ): the join equates columns of Rᵢ with the key of Rⱼ; `on` pairs them. `refers`: annotated with RI."""

    start: int
    end: int
    on: tuple[tuple[str, str], ...]
    refers: bool


@dataclass(frozen=True)
class JoinGraph:
    """G(V): the inputs of a join by their positions, the edges between them, and the inputs whose key V preserves."""

    size: int
    edges: tuple[Edge, ...]
    preserved: frozenset[int] = frozenset()

    @property
    def links(self) -> tuple[Edge, ...]:
        """The references that are used: not those of a cycle, where each table would wait for another (B.2)."""
        reach = _closure(self.size, ((e.start, e.end) for e in self.edges if e.refers))
        return tuple(e for e in self.edges if e.refers and e.start not in reach[e.end])

    def dep(self, i: int) -> frozenset[int]:
        """Dep(Rᵢ): what Rᵢ refers to by a reference along which the view joins."""
        return frozenset(e.end for e in self.links if e.start == i)

    def dep_plus(self, i: int) -> frozenset[int]:
        """Dep⁺(Rᵢ), the transitive closure of Dep."""
        return frozenset(_closure(self.size, ((j, k) for j in range(self.size) for k in self.dep(j)))[i])

    def need(self, i: int) -> frozenset[frozenset[int]]:
        """Need(Rᵢ): the sets of inputs of which one must be joined with Rᵢ to find rows of the view by a key.

        None are needed if V preserves the key of Rᵢ. Otherwise a table that joins on the key of Rᵢ, and what that one
        needs; without one, all. Sets that contain the only root are left out where there are others (B.1).

        >>> store, sale, line = 0, 1, 2
        >>> graph = JoinGraph(3, (Edge(sale, store, (), True), Edge(line, sale, (), True)), frozenset({sale, line}))
        >>> sorted(map(sorted, graph.need(store))), sorted(map(sorted, graph.need(sale)))
        ([[1]], [[]])
        """
        found = self._need(i, frozenset())
        root = self.root
        without = frozenset(each for each in found if root not in each)
        return without or found or frozenset({frozenset(range(self.size)) - {i}})

    def _need(self, i: int, on_the_way: frozenset[int]) -> frozenset[frozenset[int]]:
        if i in self.preserved:
            return frozenset({frozenset()})
        on_the_way |= {i}
        found: set[frozenset[int]] = set()
        for edge in self.edges:
            if edge.end == i and edge.start not in on_the_way:
                found |= {each | {edge.start} for each in self._need(edge.start, on_the_way)}
        return frozenset(found)

    @property
    def root(self) -> int | None:
        """The input that refers, directly or not, to all others; None where there is no such one."""
        return next((i for i in range(self.size) if len(self.dep_plus(i)) == self.size - 1), None)

    def needs_auxiliary(self, i: int) -> bool:
        """Algorithm 3.1: Rᵢ needs no auxiliary view if Dep⁺(Rᵢ) is all the others, and no other one needs Rᵢ."""
        others = [j for j in range(self.size) if j != i]
        return i != self.root or any(all(i in each for each in self.need(j)) for j in others)

    def referring_first(self) -> list[int]:
        """The inputs, each before those that it refers to; otherwise in their order."""
        order: list[int] = []

        def visit(i: int) -> None:
            if i not in order:
                for edge in self.links:
                    if edge.end == i:
                        visit(edge.start)
                order.append(i)

        for i in range(self.size):
            visit(i)
        return order


def _closure(size: int, pairs: Iterable[tuple[int, int]]) -> Mapping[int, set[int]]:
    reach: dict[int, set[int]] = {i: set() for i in range(size)}
    for start, end in pairs:
        reach[start].add(end)
    for via in range(size):
        for i in range(size):
            if via in reach[i]:
                reach[i] |= reach[via]
    return reach
