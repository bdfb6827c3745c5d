"""Lineage: what a view is made of, down to base tables, and which views are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deferred.errors import UnknownObjectError, nearest


@dataclass(frozen=True)
class Lineage:
    """A table or view, and what is beyond it in one direction."""

    name: str
    health: str | None
    """None for a base table."""
    beyond: tuple[Lineage, ...] = ()
    is_above: bool = False
    """Whether what is beyond it is listed where it was named first: views that share parts would repeat them without
    end."""

    def to_dict(self) -> dict[str, Any]:
        beyond = [part.to_dict() for part in self.beyond]
        return {"name": self.name, "health": self.health, "beyond": beyond, "above": self.is_above}


def reads(views: Sequence[Mapping[str, Any]], name: str) -> Lineage:
    """What a view reads, what those views read, and so on.

    >>> views = [{"name": "a", "health": "fresh", "reads": ["t"]}, {"name": "b", "health": "late", "reads": ["a", "u"]}]
    >>> [part.name for part in reads(views, "b").beyond], [part.name for part in reads(views, "b").beyond[0].beyond]
    (['a', 'u'], ['t'])
    """
    known = {view["name"]: view for view in views}
    return _beyond(known, {name: list(view["reads"]) for name, view in known.items()}, _known(known, name), set())


def read_by(views: Sequence[Mapping[str, Any]], name: str) -> Lineage:
    """Which views read a view, which read those, and so on.

    >>> views = [{"name": "a", "health": "fresh", "reads": ["t"]}, {"name": "b", "health": "late", "reads": ["a"]}]
    >>> [part.name for part in read_by(views, "A").beyond]
    ['b']
    """
    known = {view["name"]: view for view in views}
    users: dict[str, list[str]] = {}
    for view in views:
        for read in view["reads"]:
            users.setdefault(read, []).append(view["name"])
    return _beyond(known, users, _known(known, name), set())


def levels(views: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How far each table and view is from base tables, which are at 0.

    >>> levels([{"name": "b", "reads": ["a", "t"]}, {"name": "a", "reads": ["t"]}])
    {'t': 0, 'a': 1, 'b': 2}
    """
    known = {view["name"]: view["reads"] for view in views}
    found: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in found:
            found[name] = 1 + max(map(level, known[name]), default=0) if name in known else 0
        return found[name]

    for name in known:
        level(name)
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def _known(known: Mapping[str, Any], name: str) -> str:
    found = {candidate.casefold(): candidate for candidate in known}.get(name.casefold())
    if found is None:
        raise UnknownObjectError(f"There is no view {name}{nearest(name, known)}")
    return found


def _beyond(
    known: Mapping[str, Mapping[str, Any]], edges: Mapping[str, Sequence[str]], name: str, named: set[str]
) -> Lineage:
    """The lineage of a name; what is beyond those that were `named` already is left out."""
    health = known[name]["health"] if name in known else None
    others = edges.get(name, ())
    if name in named:
        return Lineage(name, health, is_above=bool(others))
    named.add(name)
    return Lineage(name, health, tuple(_beyond(known, edges, other, named) for other in others))
