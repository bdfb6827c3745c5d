"""Constants as places in an order: every type whose values SQL orders is ordered like numbers, exactly.

The solver knows integers and rational numbers only. A text becomes the fraction whose digits are its bytes, so that
fractions compare as the texts do; where there are more fractions than texts, a condition may seem satisfiable that is
not, never the other way around. So it is with floating-point numbers, where NaN is just the greatest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from deferred.algebra.types import BITS

NUMBER, DOUBLE, STRING, BOOLEAN, DATE = "number", "double", "string", "boolean", "date"
TIMESTAMP, LOCAL = "timestamp", "timestamp_ntz"

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_EPOCH = datetime(1970, 1, 1)
_YEARS = range(1900, 9999)
"""Years in which every calendar and every writer agree on what a date means."""


@dataclass(frozen=True)
class Kind:
    """What is known of a type: with which others its values are compared, and, of exact numbers, their digits."""

    name: str
    before_point: int = 0
    after_point: int = 0
    whole: bool = False
    """Whether its values are integers, or counted like them: days and microseconds."""
    bits: int = 0

    def compares_exactly(self, other: Kind) -> bool:
        """Whether SQL compares values of both kinds as they are. Spark compares decimals in at most 38 digits."""
        if self.name != other.name:
            return False
        digits = max(self.before_point, other.before_point) + max(self.after_point, other.after_point)
        return digits <= 38 or (self.whole and other.whole)


def kind_of(type_: str) -> Kind | None:
    """The kind of a type, None where nothing is known of its order: collated and padded texts, nested types.

    >>> kind_of("decimal(10,2)").after_point, kind_of("int").bits, kind_of("char(3)")
    (2, 32, None)
    """
    name = type_.strip().lower()
    if name in BITS:
        return Kind(NUMBER, _DIGITS[name], whole=True, bits=BITS[name])
    if found := re.fullmatch(r"decimal\((\d+), ?(\d+)\)", name):
        precision, scale = map(int, found.groups())
        return Kind(NUMBER, precision - scale, scale)
    if name in ("float", "double"):
        return Kind(DOUBLE)
    if name == BOOLEAN:
        return Kind(BOOLEAN, whole=True)
    if name in (DATE, TIMESTAMP, LOCAL):
        return Kind(name, whole=True)
    return Kind(STRING) if name in (STRING, "varchar") or name.startswith("varchar(") else None


def place(value: Any, kind: Kind, zone: str | None = None) -> Fraction | None:
    """The place of a value in the order of its kind, None where it is not known.

    >>> place("a", Kind(STRING)) < place("a\\0", Kind(STRING)) < place("b", Kind(STRING))
    True
    >>> place("2024-02-30", Kind(DATE)) is None
    True
    """
    try:
        if kind.name == STRING:
            return _text(value) if isinstance(value, str) else None
        if kind.name == BOOLEAN:
            return Fraction(_PLACES[str(value).lower()])
        if kind.name == DATE:
            return _day(value)
        if kind.name in (TIMESTAMP, LOCAL):
            return _moment(value, kind.name, zone)
        number = Fraction(Decimal(str(value)))
        return Fraction(float(number)) if kind.name == DOUBLE else number
    except (ValueError, OverflowError, InvalidOperation, KeyError):
        return None


_PLACES = {"false": 0, "true": 1}


def _text(value: str) -> Fraction:
    """0.b₁b₂… in base 257, every byte one higher: a text comes after its beginnings, as in UTF-8's order."""
    numerator = 0
    data = value.encode()
    for byte in data:
        numerator = numerator * 257 + byte + 1
    return Fraction(numerator, 257 ** len(data))


def after_all_with(prefix: str) -> Fraction:
    """The first place after all texts that begin with a prefix.

    >>> _text("xyz") < after_all_with("xy") <= _text("xz")
    True
    """
    return _text(prefix) + Fraction(1, 257 ** len(prefix.encode()))


def _day(value: Any) -> Fraction | None:
    if isinstance(value, str):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            return None
        value = date.fromisoformat(value)
    return Fraction(value.toordinal()) if value.year in _YEARS else None


def _moment(value: Any, kind: str, zone: str | None) -> Fraction | None:
    """Microseconds since 1970, in UTC, or for a local time as if it were in UTC."""
    if isinstance(value, str):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?)?", value):
            return None
        value = datetime.fromisoformat(value)
    if value.year not in _YEARS or (kind == LOCAL and value.tzinfo is not None):
        return None
    if kind == TIMESTAMP and value.tzinfo is None:
        if zone is None or value.year not in range(1970, 2038):
            return None
        value = value.replace(tzinfo=ZoneInfo(zone))
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return Fraction((plain - _EPOCH) // timedelta(microseconds=1))


def day_at(place_: int) -> str:
    """The date at a place.

    >>> day_at(int(place("2024-02-29", Kind(DATE))))
    '2024-02-29'
    """
    return date.fromordinal(place_).isoformat()
