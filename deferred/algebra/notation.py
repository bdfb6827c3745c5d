"""Plans as a person reads them: the paper's notation, on one line, and the equations by which a view is maintained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import singledispatch

from sqlglot import exp

from deferred.algebra.figure2 import differential, log, table
from deferred.algebra.group import Aggregate
from deferred.algebra.join import Join
from deferred.algebra.plan import (
    Change,
    Filter,
    Plan,
    Project,
    Ref,
    Restrict,
    Scan,
    UnionAll,
    Values,
)
from deferred.algebra.scalar import Scalar, columns_of, conjunction, conjuncts, rewrite
from deferred.algebra.sets import Distinct, SetOperation
from deferred.algebra.simplify import simplify


def notation(plan: Plan) -> str:
    """A plan in the paper's notation; columns have the names they have in their tables.

    >>> from sqlglot import parse_one
    >>> from deferred.algebra.scalar import column
    >>> r, s = Scan("R", ("A", "B"), ("c1", "c2")), Scan("S", ("B", "C"), ("c3", "c4"))
    >>> notation(Project(Join((r, s), parse_one("c2 = c3")), (("c5", column("c1")),)))
    'Π[A](R ⋈[R.B = S.B] S)'
    >>> notation(SetOperation(Distinct(r), s, "EXCEPT", True, ("c5", "c6")))
    'ε(R) ∸ S'
    >>> notation(Aggregate(r, ("c1",), (("c5", parse_one("sum(c2)")),)))
    'γ[A; SUM(B)](R)'
    """
    return _text(plan, Labels(plan))


def equations(plan: Plan, changed: Iterable[str] | None = None, name: str = "V") -> list[str]:
    """How a view follows the log, as equations of Figure 2 in the post-update state: ▼ its deletions, ▲ its additions.

    A subquery that an equation would repeat has a name and equations of its own. Tables that have not changed leave
    no trace; by default every table has.

    >>> from sqlglot import parse_one
    >>> from deferred.algebra.scalar import column
    >>> r, s = Scan("R", ("A", "B"), ("c1", "c2")), Scan("S", ("B",), ("c3",))
    >>> view = Project(Join((r, s), parse_one("c2 = c3")), (("c4", column("c1")),))
    >>> print("\\n".join(equations(view, {"R"})))
    V = Π[A](R ⋈[R.B = S.B] S)
    ▼V = Π[A](▼R ⋈[R.B = S.B] S)
    ▲V = Π[A](▲R ⋈[R.B = S.B] S)
    >>> print("\\n".join(equations(Distinct(view), {"R"})))
    V = ε(E₁)
    ▼V = ε(▼E₁) ∸ (E₁ ∸ ▲E₁)
    ▲V = ε(▲E₁) ∸ (E₁ ∸ ▲E₁)
    E₁ = Π[A](R ⋈[R.B = S.B] S)
    ▼E₁ = Π[A](▼R ⋈[R.B = S.B] S)
    ▲E₁ = Π[A](▲R ⋈[R.B = S.B] S)
    """
    tables = {node.table for node in plan.walk() if isinstance(node, Scan)}
    changing = tables if changed is None else tables & set(changed)
    return _Equations(plan, changing).of(name, plan)


class _Equations:
    """The equations of a view, one group for it and one for each subquery that got a name."""

    def __init__(self, view: Plan, changing: set[str]) -> None:
        self.changing = changing
        self.labels = Labels(view)
        self.named: dict[Plan, Scan] = {}

    def of(self, name: str, plan: Plan) -> list[str]:
        before = len(self.named)
        lines = self._group(name, self._outline(plan))
        for subquery, scan in list(self.named.items())[before:]:
            lines += self.of(scan.table, subquery)
        return lines

    def _group(self, name: str, outline: Plan) -> list[str]:
        """name, ▼name and ▲name: the rules of Figure 2 on an outline whose named subqueries stand as tables."""
        logged = {scan.table: scan.names for scan in _scans(outline) if self._changes(scan)}
        dual = differential(log(logged), outline)
        sides = {name: outline, f"▼{name}": dual.additions, f"▲{name}": dual.deletions}
        return [f"{left} = {_text(simplify(right), self.labels)}" for left, right in sides.items()]

    def _outline(self, plan: Plan) -> Plan:
        """The plan down to the first operators that repeat their inputs; those inputs by name."""
        if isinstance(plan, Join):
            plan = _binary(plan)
        if isinstance(plan, (Filter, Project, UnionAll)):
            return plan.with_children([self._outline(child) for child in plan.children])
        return plan.with_children([self._name(child) for child in plan.children])

    def _name(self, plan: Plan) -> Plan:
        if isinstance(plan, Scan) or not any(map(self._changes, _scans(plan))):
            return plan
        if plan not in self.named:
            number = str(len(self.named) + 1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
            self.named[plan] = table(f"E{number}", plan.columns)
        return self.named[plan]

    def _changes(self, scan: Scan) -> bool:
        return scan.table in self.changing or scan in self.named.values()


def _binary(join: Join) -> Join:
    """E₁ ⋈ … ⋈ Eₙ as (E₁ ⋈ … ⋈ Eₙ₋₁) ⋈ Eₙ, every conjunct as far inside as it goes."""
    if len(join.inputs) <= 2:
        return join
    inner = Join(join.inputs[:-1])
    parts = conjuncts(join.condition)
    inside = [part for part in parts if columns_of(part) <= set(inner.columns)]
    outside = [part for part in parts if part not in inside]
    return Join((Join(inner.inputs, conjunction(inside)), join.inputs[-1]), conjunction(outside))


def _scans(plan: Plan) -> list[Scan]:
    return [node for node in plan.walk() if isinstance(node, Scan)]


class Labels:
    """What a person calls the columns and tables of a plan.

    A column has its name in its table, with the table's name where two tables share it; a computed one is its
    expression. A table that is joined with itself has a prime for each further occurrence.
    """

    def __init__(self, plan: Plan) -> None:
        self.primes = _primes(plan)
        scans = _scans(plan)
        self._shared = Counter(name for scan in scans for name in set(scan.names))
        self._columns: dict[str, str] = {}
        self._seen: set[Plan] = set()
        self._learn(plan)

    def table(self, scan: Scan | Change) -> str:
        return scan.table + self.primes.get(scan.ids, "")

    def column(self, name: str) -> str:
        return self._columns.get(name, name)

    def scalar(self, expression: Scalar) -> str:
        """SQL with the columns under their labels."""

        def relabel(node: Scalar) -> Scalar | None:
            if not isinstance(node, exp.Column):
                return None
            return exp.Column(this=exp.Identifier(this=self.column(node.name), quoted=False))

        return rewrite(expression, relabel).sql(dialect="spark")

    def _learn(self, plan: Plan) -> None:
        if plan in self._seen:
            return
        self._seen.add(plan)
        for child in plan.children:
            self._learn(child)
        if isinstance(plan, Scan):
            for name, mine in zip(plan.names, plan.ids, strict=True):
                self._columns[mine] = f"{self.table(plan)}.{name}" if self._shared[name] > 1 else name
        elif isinstance(plan, (Project, Aggregate)):
            self._columns |= {out: self._computed(out, expression) for out, expression in plan.outputs}
        elif isinstance(plan, (UnionAll, SetOperation)):
            first = plan.children[0].columns
            self._columns |= {mine: self.column(theirs) for mine, theirs in zip(plan.ids, first, strict=True)}

    def _computed(self, name: str, expression: Scalar) -> str:
        text = self.scalar(expression)
        if isinstance(expression, (exp.Column, exp.Literal, exp.Func)):
            return text if len(text) <= _LONGEST else name
        return f"({text})" if len(text) <= _LONGEST else name


_LONGEST = 40
"""A computed column with a longer expression goes by its id."""


def _primes(plan: Plan) -> dict[tuple[str, ...], str]:
    primes: dict[tuple[str, ...], str] = {}
    for join in (node for node in plan.walk() if isinstance(node, Join)):
        met: Counter[str] = Counter()
        for scan in _scans(join):
            primes[scan.ids] = max(primes.get(scan.ids, ""), "′" * met[scan.table])
            met[scan.table] += 1
    return primes


@singledispatch
def _text(plan: Plan, labels: Labels) -> str:
    return f"{type(plan).__name__}({', '.join(_text(child, labels) for child in plan.children)})"


@_text.register
def _scan(plan: Scan, labels: Labels) -> str:
    return labels.table(plan)


@_text.register
def _change(plan: Change, labels: Labels) -> str:
    return f"(▲{labels.table(plan)} − ▼{labels.table(plan)})"


@_text.register
def _values(plan: Values, labels: Labels) -> str:
    rows = (f"({', '.join(labels.scalar(value) for value in row)})" for row in plan.rows)
    return f"{{{', '.join(rows)}}}" if plan.rows else "φ"


@_text.register
def _ref(plan: Ref, labels: Labels) -> str:
    return plan.name


@_text.register
def _restrict(plan: Restrict, labels: Labels) -> str:
    keys = ", ".join(labels.scalar(mine) for mine, _ in plan.keys.on)
    return _infix(f"⋉[{keys}]", plan.children, labels)


@_text.register
def _filter(plan: Filter, labels: Labels) -> str:
    return f"σ[{labels.scalar(plan.condition)}]({_text(plan.child, labels)})"


@_text.register
def _project(plan: Project, labels: Labels) -> str:
    return f"Π[{_outputs(plan, labels)}]({_text(plan.child, labels)})"


@_text.register
def _aggregate(plan: Aggregate, labels: Labels) -> str:
    keys = ", ".join(labels.column(key) for key in plan.keys)
    return f"γ[{keys}; {_outputs(plan, labels)}]({_text(plan.child, labels)})"


@_text.register
def _distinct(plan: Distinct, labels: Labels) -> str:
    return f"ε({_text(plan.child, labels)})"


@_text.register
def _union_all(plan: UnionAll, labels: Labels) -> str:
    return _infix("⊎", plan.children, labels)


@_text.register
def _set_operation(plan: SetOperation, labels: Labels) -> str:
    return _infix(_SET_OPERATIONS[plan.kind, plan.every], plan.children, labels)


_SET_OPERATIONS = {
    ("EXCEPT", True): "∸",
    ("EXCEPT", False): "EXCEPT",
    ("INTERSECT", True): "min",
    ("INTERSECT", False): "INTERSECT",
}


@_text.register
def _join(plan: Join, labels: Labels) -> str:
    if plan.condition is not None and len(plan.inputs) == 2:
        return _infix(f"⋈[{labels.scalar(plan.condition)}]", plan.children, labels)
    product = _infix("×", plan.children, labels)
    return product if plan.condition is None else f"σ[{labels.scalar(plan.condition)}]({product})"


def _infix(symbol: str, sides: Sequence[Plan], labels: Labels) -> str:
    return f" {symbol} ".join(_side(side, labels) for side in sides)


def _side(plan: Plan, labels: Labels) -> str:
    """An operand, in parentheses when it is an infix operation itself."""
    text = _text(plan, labels)
    infix = isinstance(plan, (Restrict, UnionAll, SetOperation)) or (isinstance(plan, Join) and text[0] != "σ")
    return f"({text})" if infix else text


def _outputs(plan: Project | Aggregate, labels: Labels) -> str:
    texts = []
    for name, expression in plan.outputs:
        text = labels.scalar(expression)
        texts.append(text if len(text) <= _LONGEST else f"{text} → {name}")
    return ", ".join(texts)
