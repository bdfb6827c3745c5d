"""Simplification of symbolic plans: the laws of φ, of sharing and of nesting, one function per law.

A law looks at one node whose inputs are already simplified and returns the simpler plan, or None where it does not
apply. Every law holds in every state; none of them reads one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deferred.algebra.operators import (
    EXCEPT,
    INTERSECT,
    Distinct,
    Filter,
    Join,
    Project,
    Restrict,
    Scan,
    SetOperation,
    UnionAll,
    Values,
)
from deferred.algebra.plan import Plan, transformed
from deferred.algebra.scalar import column, is_column

_R = Scan("R", ("a",), ("a",))  # for the doctests below
_PHI = Values(("a",), ())


def monus(left: Plan, right: Plan) -> Plan:
    """E ∸ F: max(0, n − m) of every row."""
    return SetOperation(left, right, EXCEPT, True, left.columns)


def simplify(plan: Plan) -> Plan:
    """The plan under all LAWS, from the leaves up.

    >>> simplify(UnionAll((Distinct(_PHI), monus(_R, Filter(_PHI, column("a")))), ("a",))) is _R
    True
    """
    return transformed(plan, _simpler)


def empty(columns: tuple[str, ...]) -> Values:
    """φ with the given columns."""
    return Values(columns, ())


def is_empty(plan: Plan) -> bool:
    return isinstance(plan, Values) and not plan.rows


def named(plan: Plan, columns: tuple[str, ...]) -> Plan:
    """A plan under other column ids, by position."""
    if plan.columns == columns:
        return plan
    return Project(plan, tuple((new, column(old)) for new, old in zip(columns, plan.columns, strict=True)))


def empty_selection(plan: Plan) -> Plan | None:
    """σ(φ) = φ

    >>> is_empty(empty_selection(Filter(_PHI, column("a"))))
    True
    """
    return plan.child if isinstance(plan, Filter) and is_empty(plan.child) else None


def empty_projection(plan: Plan) -> Plan | None:
    """Π(φ) = φ

    >>> is_empty(empty_projection(Project(_PHI, (("b", column("a")),))))
    True
    """
    return empty(plan.columns) if isinstance(plan, Project) and is_empty(plan.child) else None


def empty_distinct(plan: Plan) -> Plan | None:
    """ε(φ) = φ

    >>> is_empty(empty_distinct(Distinct(_PHI)))
    True
    """
    return plan.child if isinstance(plan, Distinct) and is_empty(plan.child) else None


def empty_restriction(plan: Plan) -> Plan | None:
    """φ ⋉ K = E ⋉ φ = φ

    >>> from deferred.algebra.plan import Keys
    >>> is_empty(empty_restriction(Restrict(_R, Keys.of(_PHI, [("a", "a")]))))
    True
    """
    if isinstance(plan, Restrict) and (is_empty(plan.child) or is_empty(plan.keys.plan)):
        return empty(plan.columns)
    return None


def empty_union(plan: Plan) -> Plan | None:
    """φ ⊎ E = E ⊎ φ = E

    >>> empty_union(UnionAll((_PHI, _R), ("a",))) is _R
    True
    """
    if not isinstance(plan, UnionAll) or not any(map(is_empty, plan.inputs)):
        return None
    rest = tuple(side for side in plan.inputs if not is_empty(side))
    if not rest:
        return empty(plan.ids)
    return named(rest[0], plan.ids) if len(rest) == 1 else replace(plan, inputs=rest)


def empty_product(plan: Plan) -> Plan | None:
    """φ × E = E × φ = φ

    >>> is_empty(empty_product(Join((_R, _PHI))))
    True
    """
    return empty(plan.columns) if isinstance(plan, Join) and any(map(is_empty, plan.inputs)) else None


def empty_minuend(plan: Plan) -> Plan | None:
    """φ ∸ E = φ min E = φ, and without ALL

    >>> is_empty(empty_minuend(monus(_PHI, _R)))
    True
    """
    return empty(plan.ids) if isinstance(plan, SetOperation) and is_empty(plan.left) else None


def empty_subtrahend(plan: Plan) -> Plan | None:
    """E ∸ φ = E, E EXCEPT φ = ε(E)

    >>> empty_subtrahend(monus(_R, _PHI)) is _R
    True
    """
    if not isinstance(plan, SetOperation) or plan.kind != EXCEPT or not is_empty(plan.right):
        return None
    kept = named(plan.left, plan.ids)
    return kept if plan.every else Distinct(kept)


def empty_intersection(plan: Plan) -> Plan | None:
    """E min φ = φ, E INTERSECT φ = φ

    >>> is_empty(empty_intersection(SetOperation(_R, _PHI, INTERSECT, True, ("a",))))
    True
    """
    if isinstance(plan, SetOperation) and plan.kind == INTERSECT and is_empty(plan.right):
        return empty(plan.ids)
    return None


def self_subtraction(plan: Plan) -> Plan | None:
    """E ∸ E = φ

    >>> is_empty(self_subtraction(monus(_R, _R)))
    True
    """
    if isinstance(plan, SetOperation) and plan.kind == EXCEPT and plan.left is plan.right:
        return empty(plan.ids)
    return None


def nested_union(plan: Plan) -> Plan | None:
    """(E ⊎ F) ⊎ G = E ⊎ F ⊎ G

    >>> len(nested_union(UnionAll((UnionAll((_R, _R), ("a",)), _R), ("a",))).inputs)
    3
    """
    if not isinstance(plan, UnionAll) or not any(isinstance(side, UnionAll) for side in plan.inputs):
        return None
    flat = (part for side in plan.inputs for part in (side.inputs if isinstance(side, UnionAll) else (side,)))
    return replace(plan, inputs=tuple(flat))


def identity_projection(plan: Plan) -> Plan | None:
    """Π over exactly the columns of E = E

    >>> identity_projection(Project(_R, (("a", column("a")),))) is _R
    True
    """
    if not isinstance(plan, Project) or plan.columns != plan.child.columns:
        return None
    return plan.child if all(is_column(e) and e.name == out for out, e in plan.outputs) else None


def nested_product(plan: Plan) -> Plan | None:
    """(E × F) × G = E × F × G

    >>> len(nested_product(Join((Join((_R, _R)), _R))).inputs)
    3
    """
    if not isinstance(plan, Join) or not any(map(_is_product, plan.inputs)):
        return None
    flat = (part for side in plan.inputs for part in (side.children if _is_product(side) else (side,)))
    return replace(plan, inputs=tuple(flat))


def _is_product(plan: Plan) -> bool:
    return isinstance(plan, Join) and plan.condition is None


def selected_product(plan: Plan) -> Plan | None:
    """σ(E × F) = E ⋈ F

    >>> selected_product(Filter(Join((_R, _R)), column("a"))).condition.name
    'a'
    """
    if isinstance(plan, Filter) and isinstance(plan.child, Join) and plan.child.condition is None:
        return replace(plan.child, condition=plan.condition)
    return None


LAWS: tuple[Callable[[Plan], Plan | None], ...] = (
    empty_selection,
    empty_projection,
    empty_distinct,
    empty_restriction,
    empty_union,
    empty_product,
    empty_minuend,
    empty_subtrahend,
    empty_intersection,
    self_subtraction,
    nested_union,
    identity_projection,
    nested_product,
    selected_product,
)


def _simpler(plan: Plan) -> Plan:
    """The first law that applies, repeatedly, until none does."""
    for law in LAWS:
        simpler = law(plan)
        if simpler is not None:
            return _simpler(simpler)
    return plan
