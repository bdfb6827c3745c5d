"""SQL's three-valued conditions as formulas for the solver z3.

A condition becomes two formulas, when it is true and when it is false; where neither holds it is NULL. What is not
understood is left open: it may be true, false or NULL, independently of everything. So a formula is satisfiable
whenever some row makes the condition true, and "unsatisfiable" can be relied on.

Arithmetic on integers is exact in ANSI mode, where an overflow fails and a condition that fails is not true; elsewhere,
and on other types, it is left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from deferred.algebra.relevance.conditions import original
from deferred.algebra.relevance.constants import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LOCAL,
    NUMBER,
    STRING,
    TIMESTAMP,
    Kind,
    after_all_with,
    kind_of,
    place,
)
from deferred.algebra.scalar import COMPARISONS, Scalar

if TYPE_CHECKING:
    import z3

MILLISECONDS = 200
"""The solver's time for one question; one that it does not answer by then counts as satisfiable."""

TRUTH = Kind(BOOLEAN, whole=True)
"""The kind of conditions as values."""

FAR = 10**40
"""Farther than any whole number, day or microsecond of SQL."""

EXACT = 1 << 24
"""Whole numbers up to this one are the same in every floating-point type."""


@dataclass(frozen=True)
class Dialect:
    """On what the meaning of a condition depends beside its text: ANSI mode, and the time zone of the session."""

    ansi: bool = False
    zone: str | None = None

    @staticmethod
    def of(settings: Mapping[str, str] | None) -> Dialect:
        """The dialect of the settings that are kept with a view."""
        given = settings or {}
        return Dialect(given.get("spark.sql.ansi.enabled") == "true", given.get("spark.sql.session.timeZone"))


@dataclass(frozen=True)
class Known:
    """What is known of one column in some rows: places between which its values are, and whether there are NULLs."""

    lowest: Fraction | None = None
    highest: Fraction | None = None
    has_nulls: bool = True
    has_values: bool = True


class Truth(NamedTuple):
    """When a condition is true, and when it is false."""

    true: z3.BoolRef
    false: z3.BoolRef


@dataclass(frozen=True)
class Value:
    """A value: when it is NULL, its place in the order of its kind, and its constant if it is one.

    Without a kind nothing is known but whether it is NULL; `void` is the NULL that stands in the text.
    """

    null: z3.BoolRef
    place: z3.ArithRef | None = None
    kind: Kind | None = None
    constant: Any = None
    void: bool = False


class Logic:
    """Translates conditions over columns of known types, and asks the solver. Belongs to one thread."""

    def __init__(self, types: Mapping[str, str], dialect: Dialect) -> None:
        import z3  # takes a tenth of a second, and most commands need none

        self.z3 = z3
        self.context = z3.Context()
        self._solver = z3.SimpleSolver(ctx=self.context)
        self._solver.set("timeout", MILLISECONDS)
        self._types = types
        self._dialect = dialect
        self._columns: dict[str, Value] = {}
        self._known: dict[Scalar, Truth] = {}
        self._fresh = 0
        self._left_open = False
        self.constants: dict[tuple[str, Fraction], Scalar] = {}
        """The constants that the conditions contain, by kind and place, as they were written."""

    # ---- questions

    def satisfiable(self, *formulas: z3.BoolRef) -> bool:
        """Whether all formulas can be true together; also where the solver does not know."""
        self._solver.push()
        try:
            self._solver.add(*formulas)
            return bool(self._solver.check() != self.z3.unsat)
        finally:
            self._solver.pop()

    def implied(self, by: Iterable[z3.BoolRef], formula: z3.BoolRef) -> bool:
        """Whether a formula is true wherever some others are."""
        return not self.satisfiable(*by, self._not(formula))

    def extreme(self, given: z3.BoolRef, place_: z3.ArithRef, greatest: bool) -> int | None:
        """The greatest or least integer that an expression can be, None where there is none, or none that matters."""
        beyond = place_ > FAR if greatest else place_ < -FAR
        if self.satisfiable(given, beyond):  # asked first, because finding an extreme takes much longer
            return None
        optimizer = self.z3.Optimize(ctx=self.context)
        optimizer.set("timeout", MILLISECONDS)
        optimizer.add(*self._solver.assertions(), given)
        goal = optimizer.maximize(place_) if greatest else optimizer.minimize(place_)
        if optimizer.check() != self.z3.sat:
            return None
        found = optimizer.upper(goal) if greatest else optimizer.lower(goal)
        return found.as_long() if self.z3.is_int_value(found) else None

    def conjunction(self, conditions: tuple[Scalar, ...]) -> z3.BoolRef:
        """That all conditions are true."""
        return self._all(*(self.truth(condition).true for condition in conditions))

    def known(self, name: str, known: Known) -> z3.BoolRef:
        """That a column is as it is known to be."""
        value = self.column(name)
        inside = []
        if value.place is not None and known.lowest is not None:
            inside.append(value.place >= self._number(known.lowest))
        if value.place is not None and known.highest is not None:
            inside.append(value.place <= self._number(known.highest))
        as_value = self._all(self._not(value.null), *inside) if known.has_values else self._false
        return self._any(as_value, value.null) if known.has_nulls else as_value

    def understood(self, condition: Scalar) -> bool:
        """Whether nothing of a condition is left open, and it cannot fail on any row."""
        self._left_open = False
        self.truth(condition)
        return not self._left_open

    # ---- conditions

    def truth(self, e: Scalar) -> Truth:
        """When a condition is true and when it is false. One of which nothing is left open is translated once."""
        if e not in self._known:
            before, self._left_open = self._left_open, False
            found = self._truth(e)
            if not self._left_open:
                self._known[e] = found
            self._left_open |= before
            return found
        return self._known[e]

    def _truth(self, e: Scalar) -> Truth:
        if isinstance(e, exp.Paren):
            return self.truth(e.this)
        if isinstance(e, (exp.And, exp.Or)):
            left, right = self.truth(e.this), self.truth(e.expression)
            if isinstance(e, exp.And):
                return Truth(self._all(left.true, right.true), self._any(left.false, right.false))
            return Truth(self._any(left.true, right.true), self._all(left.false, right.false))
        if isinstance(e, exp.Not):
            inner = self.truth(e.this)
            return Truth(inner.false, inner.true)
        if isinstance(e, exp.Is):
            return self._is(e)
        if isinstance(e, exp.In) and e.expressions and not (e.args.get("query") or e.args.get("unnest")):
            return self._member(self.value(e.this), [self.value(item) for item in e.expressions])
        if isinstance(e, exp.Between):
            value = self.value(e.this)
            low = self._compared(exp.GTE, value, self.value(e.args["low"]))
            high = self._compared(exp.LTE, value, self.value(e.args["high"]))
            return Truth(self._all(low.true, high.true), self._any(low.false, high.false))
        if isinstance(e, exp.Like):
            return self._like(e)
        if isinstance(e, (exp.NullSafeEQ, exp.NullSafeNEQ)):
            equal = self._null_safe(self.value(e.this), self.value(e.expression))
            return equal if isinstance(e, exp.NullSafeEQ) else Truth(equal.false, equal.true)
        if type(e) in COMPARISONS:
            return self._compared(type(e), self.value(e.this), self.value(e.expression))
        return self._as_truth(self.value(e))

    def _as_truth(self, value: Value) -> Truth:
        if value.void:
            return Truth(self._false, self._false)
        if value.place is None or value.kind is None or value.kind.name != BOOLEAN:
            return self._open(value)
        present = self._not(value.null)
        return Truth(self._all(present, value.place == 1), self._all(present, value.place == 0))

    def _is(self, e: exp.Is) -> Truth:
        if isinstance(e.expression, exp.Null):
            null = self.value(e.this).null
            return Truth(null, self._not(null))
        if isinstance(e.expression, exp.Boolean):
            inner = self.truth(e.this)
            asked = inner.true if e.expression.this else inner.false
            return Truth(asked, self._not(asked))
        return self._open()

    def _member(self, value: Value, items: list[Value]) -> Truth:
        """x = i₁ OR x = i₂ …; a list whose items would be converted together is left open."""
        kinds = {item.kind.name for item in items if item.kind is not None}
        if value.kind is None or not kinds <= {value.kind.name, *((NUMBER,) if value.kind.name == DOUBLE else ())}:
            return self._open(value)
        places = [self._places(value, item) for item in items if not item.void]
        if None in places:
            return self._open(value)
        if all(item.constant is not None or item.void for item in items):  # a long list, as a rule
            among = self._any(*(mine == other for mine, other in filter(None, places)))
            present, void = self._not(value.null), len(places) < len(items)
            return Truth(self._all(present, among), self._false if void else self._all(present, self._not(among)))
        found = [self._compared(exp.EQ, value, item) for item in items]
        return Truth(self._any(*(t.true for t in found)), self._all(*(t.false for t in found)))

    def _like(self, e: exp.Like) -> Truth:
        """A pattern that is only a beginning is a range of texts; others are left open."""
        value, pattern = self.value(e.this), e.expression
        text = pattern.this if isinstance(pattern, exp.Literal) and pattern.is_string else ""
        prefix = text[:-1]
        plain = text.endswith("%") and not set(prefix) & set("%_\\")
        if not plain or value.place is None or value.kind is None or value.kind.name != STRING:
            return self._open(value)
        begins = place(prefix, value.kind)
        assert begins is not None
        inside = self._all(value.place >= self._number(begins), value.place < self._number(after_all_with(prefix)))
        present = self._not(value.null)
        return Truth(self._all(present, inside), self._all(present, self._not(inside)))

    def _compared(self, operator: type, left: Value, right: Value) -> Truth:
        if left.void or right.void:
            return Truth(self._false, self._false)
        places = self._places(left, right)
        if places is None:
            return self._open(left, right)
        holds = COMPARISONS[operator](*places)
        present = self._all(self._not(left.null), self._not(right.null))
        return Truth(self._all(present, holds), self._all(present, self._not(holds)))

    def _null_safe(self, left: Value, right: Value) -> Truth:
        if left.void or right.void:
            other = right if left.void else left
            return Truth(other.null, self._not(other.null))
        places = self._places(left, right)
        if places is None:
            return self._open()
        values = self._all(self._not(left.null), self._not(right.null), places[0] == places[1])
        equal = self._any(self._all(left.null, right.null), values)
        return Truth(equal, self._not(equal))

    def _places(self, left: Value, right: Value) -> tuple[z3.ArithRef, z3.ArithRef] | None:
        """Two values in one order, as SQL compares them; a constant in the kind of the other side where it must be."""
        left, right = self._converted(left, right), self._converted(right, left)
        if left.place is None or right.place is None or left.kind is None or right.kind is None:
            return None
        return (left.place, right.place) if left.kind.compares_exactly(right.kind) else None

    def _converted(self, value: Value, other: Value) -> Value:
        """A constant as SQL converts it for a comparison: texts to dates and times, exact numbers to floating point."""
        if value.constant is None or value.kind is None or other.kind is None or value.kind.name == other.kind.name:
            return value
        wanted = other.kind.name
        if value.kind.name == STRING and wanted in (DATE, TIMESTAMP, LOCAL):
            return self._constant(value.constant, other.kind)
        exact = value.kind.name == NUMBER and (not value.kind.whole or abs(int(value.constant)) <= EXACT)
        return self._constant(value.constant, other.kind) if exact and wanted == DOUBLE else value

    # ---- values

    def value(self, e: Scalar) -> Value:
        """When a scalar is NULL, and its place in the order of its kind."""
        if isinstance(e, exp.Paren):
            return self.value(e.this)
        if isinstance(e, exp.Column):
            return self.column(e.name)
        if isinstance(e, exp.Null):
            return Value(self._true, void=True)
        if isinstance(e, (exp.Literal, exp.Boolean)):
            return self._noted(self._literal(e), e)
        if isinstance(e, exp.Neg):
            return self._negated(e)
        if isinstance(e, (exp.Cast, exp.TryCast)):
            return self._cast(e)
        if isinstance(e, (exp.Add, exp.Sub, exp.Mul)):
            return self._computed(e)
        if isinstance(e, exp.If):
            return self._chosen(self.truth(e.this), self.value(e.args["true"]), self._or_null(e.args.get("false")))
        if isinstance(e, exp.Case) and e.this is None:
            result = self._or_null(e.args.get("default"))
            for branch in reversed(e.args["ifs"]):
                result = self._chosen(self.truth(branch.this), self.value(branch.args["true"]), result)
            return result
        if isinstance(e, exp.Anonymous) and str(e.this).lower() == "coalesce" and e.expressions:
            return reduce(self._else, map(self.value, e.expressions))
        if isinstance(e, _CONDITIONS):
            truth = self.truth(e)
            null = self._all(self._not(truth.true), self._not(truth.false))
            return Value(null, self.z3.If(truth.true, self._number(1), self._number(0)), TRUTH)
        return self._unknown()

    def _unknown(self) -> Value:
        """A value of which nothing is known."""
        self._left_open = True
        return Value(self._boolean())

    def column(self, name: str) -> Value:
        """A column as a value."""
        if name not in self._columns:
            kind = kind_of(self._types.get(original(name)) or "")
            null = self.z3.Bool(f"{name} is null", self.context)
            if kind is None:
                self._columns[name] = Value(null)
            else:
                sort = self.z3.Int if kind.whole else self.z3.Real
                found = sort(name, self.context)
                if kind.name == BOOLEAN:
                    self._solver.add(found >= 0, found <= 1)
                self._columns[name] = Value(null, found, kind)
        return self._columns[name]

    def _literal(self, e: exp.Literal | exp.Boolean) -> Value:
        if isinstance(e, exp.Boolean):
            return self._constant(bool(e.this), TRUTH)
        if e.is_string:
            return self._constant(e.this, Kind(STRING))
        text = str(e.this).lower()
        if "e" in text:
            return self._constant(text, Kind(DOUBLE))
        if not text.replace(".", "", 1).isdigit():
            return self._unknown()
        before, point, after = text.partition(".")
        return self._constant(text, Kind(NUMBER, len(before), len(after), whole=not point))

    def _constant(self, value: Any, kind: Kind) -> Value:
        found = place(value, kind, self._dialect.zone)
        if found is None:
            return self._unknown()
        return Value(self._false, self._number(found), kind, value)

    def _noted(self, value: Value, e: Scalar) -> Value:
        """The value, which stands in a condition as written: a bound that is shown may be written like it."""
        if value.constant is not None and value.kind is not None:
            found = place(value.constant, value.kind, self._dialect.zone)
            assert found is not None
            self.constants.setdefault((value.kind.name, found), e)
        return value

    def _negated(self, e: exp.Neg) -> Value:
        inner = self.value(e.this)
        if inner.constant is None or inner.kind is None or inner.kind.name not in (NUMBER, DOUBLE):
            return self._computed(exp.Sub(this=exp.Literal.number(0), expression=e.this.copy()))
        return self._noted(self._constant(f"-{inner.constant}", inner.kind), e)

    def _cast(self, e: exp.Cast) -> Value:
        """Casts that give the same value in another type: of constants, and to wider whole numbers.

        FLOAT rounds, and how a value looks as a text is not modelled.
        """
        type_, inner = _ddl(e.to), self.value(e.this)
        if inner.void:
            return inner
        kind = None if type_ == "float" else kind_of(type_)
        if kind is not None and inner.kind is not None:
            if inner.constant is None:
                if _holds(kind, inner.kind):
                    return Value(inner.null, inner.place, kind)
            elif _fits(inner, kind):
                return self._noted(self._constant(inner.constant, kind), e)
        return self._unknown()

    def _computed(self, e: exp.Binary) -> Value:
        """Sums and products of whole numbers; that they may overflow is noted, so that they are not run elsewhere."""
        self._left_open = True
        left, right = self.value(e.this), self.value(e.expression)
        whole = all(v.kind is not None and v.kind.name == NUMBER and v.kind.whole for v in (left, right))
        linear = not isinstance(e, exp.Mul) or left.constant is not None or right.constant is not None
        if not (whole and linear and self._dialect.ansi) or left.place is None or right.place is None:
            return Value(self._boolean())
        found = {exp.Add: _add, exp.Sub: _sub, exp.Mul: _mul}[type(e)](left.place, right.place)
        return Value(self._any(left.null, right.null), found, kind_of("bigint"))

    def _chosen(self, when: Truth, then: Value, otherwise: Value) -> Value:
        null = self.z3.If(when.true, then.null, otherwise.null)
        if then.void or otherwise.void:
            other = otherwise if then.void else then
            return Value(null, other.place, other.kind, void=then.void and otherwise.void)
        if then.kind is None or otherwise.kind is None or not then.kind.compares_exactly(otherwise.kind):
            return self._unknown()
        assert then.place is not None
        assert otherwise.place is not None
        kind = Kind(
            then.kind.name,
            max(then.kind.before_point, otherwise.kind.before_point),
            max(then.kind.after_point, otherwise.kind.after_point),
            then.kind.whole and otherwise.kind.whole,
        )
        places = [self.z3.ToReal(p) if p.is_int() and not kind.whole else p for p in (then.place, otherwise.place)]
        return Value(null, self.z3.If(when.true, *places), kind)

    def _else(self, first: Value, second: Value) -> Value:
        return self._chosen(Truth(self._not(first.null), first.null), first, second)

    def _or_null(self, e: Scalar | None) -> Value:
        return Value(self._true, void=True) if e is None else self.value(e)

    # ---- formulas

    def _open(self, *values: Value) -> Truth:
        """A condition of which nothing is known but that it is not true, and not false, of a NULL."""
        self._left_open = True
        true, false = self._boolean(), self._boolean()
        self._solver.add(self._not(self._all(true, false)))
        for value in values:
            self._solver.add(self.z3.Implies(value.null, self._not(self._any(true, false))))
        return Truth(true, false)

    def _boolean(self) -> z3.BoolRef:
        self._fresh += 1
        return self.z3.Bool(f"open {self._fresh}", self.context)

    def _number(self, value: Fraction | int) -> z3.ArithRef:
        if isinstance(value, Fraction) and value.denominator != 1:
            return self.z3.Q(value.numerator, value.denominator, self.context)
        return self.z3.IntVal(int(value), self.context)

    @property
    def _true(self) -> z3.BoolRef:
        return self.z3.BoolVal(True, self.context)

    @property
    def _false(self) -> z3.BoolRef:
        return self.z3.BoolVal(False, self.context)

    def _not(self, formula: z3.BoolRef) -> z3.BoolRef:
        return self.z3.Not(formula, self.context)

    def _all(self, *formulas: z3.BoolRef) -> z3.BoolRef:
        return self.z3.And([*formulas, self._true])

    def _any(self, *formulas: z3.BoolRef) -> z3.BoolRef:
        return self.z3.Or([*formulas, self._false])


_CONDITIONS = (
    *COMPARISONS,
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.NullSafeEQ, exp.NullSafeNEQ),
)


def _add(a: Any, b: Any) -> Any:
    return a + b


def _sub(a: Any, b: Any) -> Any:
    return a - b


def _mul(a: Any, b: Any) -> Any:
    return a * b


def _ddl(type_: exp.DataType) -> str:
    """A type of a cast as DDL; TIMESTAMP is Spark's type with a time zone.

    >>> _ddl(exp.DataType.build("DECIMAL(3, 1)")), _ddl(exp.DataType.build("TIMESTAMP", dialect="spark"))
    ('decimal(3, 1)', 'timestamp')
    """
    names = {"timestamptz": TIMESTAMP, "timestamp": TIMESTAMP, "timestampntz": LOCAL, "text": STRING}
    ddl = str(type_.sql(dialect="spark")).lower()
    return names.get(ddl, ddl)


def _fits(value: Value, kind: Kind) -> bool:
    """Whether a cast of a constant to a kind leaves it what it is, or reads it as what it says."""
    assert value.kind is not None
    if kind.name in (STRING, BOOLEAN):
        return value.kind.name == kind.name
    if kind.name != NUMBER:
        return True
    found = place(value.constant, kind)
    if found is None or value.kind.name not in (NUMBER, STRING):
        return False
    if kind.whole:
        half = 1 << (kind.bits - 1)
        return found.denominator == 1 and -half <= found < half
    return (found * 10**kind.after_point).denominator == 1 and abs(found) < 10**kind.before_point


def _holds(wide: Kind, narrow: Kind) -> bool:
    """Whether every value of one kind is one of another."""
    if wide.name != narrow.name:
        return False
    if wide.name == NUMBER:
        if wide.whole != narrow.whole:
            return False
        return wide.before_point >= narrow.before_point and wide.after_point >= narrow.after_point
    return True
