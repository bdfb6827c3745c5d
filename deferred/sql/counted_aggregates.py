"""Aggregate calls made of kept parts: counts, exact sums and extremes, which a change adds to or takes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from deferred.algebra.aggregates.calls import aggregate_of
from deferred.algebra.aggregates.sums import may_overflow
from deferred.algebra.bags import bigint
from deferred.algebra.operators.counted import Count, GroupPart, Rows, Sum
from deferred.algebra.scalar import Fresh, Scalar, column
from deferred.sql.templates import fill
from deferred.sql.types import Types


class KeptPart(Protocol):
    """Returns the part of a kind, of a column; it is kept once, however many calls ask for it."""

    def __call__(self, kind: str, type_: str, argument: str | None = None) -> GroupPart: ...


@dataclass
class Arguments:
    """The columns that hold the arguments of an aggregate's calls; `computed` are those to be added below it."""

    types: Types
    column_types: dict[str, str]
    fresh: Fresh
    computed: list[tuple[str, Scalar]] = field(default_factory=list)

    def column_of(self, value: Scalar) -> str:
        """The column of an argument, a computed one where the argument is more than a column."""
        if isinstance(value, exp.Column):
            return value.name
        for name, known in self.computed:
            if known == value:
                return name
        name = self.fresh()
        self.column_types[name] = self.types.of([value], self.column_types)[0]
        self.computed.append((name, value))
        return name

    def result_type(self, function: str, argument: str) -> str:
        """The type of a function of one column."""
        call = exp.Anonymous(this=function.upper(), expressions=[column(argument)])
        return self.types.of([call], self.column_types)[0]


def made_of_parts(call: Scalar, part: KeptPart, arguments: Arguments) -> Scalar | None:
    """The value of an aggregate call as an expression of kept parts, None where it cannot be made of parts."""
    inner = call.this if isinstance(call, exp.Filter) else call
    function = aggregate_of(inner)
    values = inner.expressions if isinstance(inner, exp.Anonymous) else []
    if function is None or function.countable is None or len(values) != 1 or isinstance(values[0], exp.Distinct):
        return None
    (value,) = values
    if isinstance(value, exp.Star):
        if not function.countable.star:
            return None
        if not isinstance(call, exp.Filter):
            return column(part(Rows.kind, "bigint").id)
        value = bigint(1)
    value = fill(function.countable.value, x=value)
    if isinstance(call, exp.Filter):
        value = exp.Case(ifs=[exp.If(this=call.expression.this.copy(), true=value)])
    argument = arguments.column_of(value)
    # The count comes first, and for every call: it says whether there is any value at all.
    kept = {Count.kind: part(Count.kind, "bigint", argument)}
    type_ = arguments.column_types[argument].lower()
    made = function.countable.parts(type_, lambda: arguments.result_type(str(inner.this), argument))
    if made is None:
        return None
    if Sum.kind in dict(made.kept) and may_overflow(type_) and not arguments.types.fails_on_overflow:
        return None  # such a sum is NULL, and what is taken from it later could not bring it back
    kept |= {kind: part(kind, type_, argument) for kind, type_ in made.kept}
    return fill(made.final, **{kind: column(kept_part.id) for kind, kept_part in kept.items()})
