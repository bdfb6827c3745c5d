"""Signed bags as SQL: how they are signed, netted, subtracted, remaining, written out and merged into a table.

A signed bag is a query whose last column, COUNT, says how often a row is inserted (positive) or deleted (negative).
Everything here takes and returns sqlglot trees, so that plans, Delta tables and temporary results share one
implementation. `columns` are (name, type); the type decides only which rows are different, see identity_keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from deferred.algebra.nested import identity
from deferred.algebra.types import Columns, equality_is_coarser

COUNT = "_deferred_n"
"""The column of a signed bag that says how often a row is inserted (positive) or deleted (negative)."""

PRESENT = "_deferred_present"
"""How many copies of a row a table holds."""

OPERATION = "_deferred_op"
"""What a MERGE does with a row of its source: INSERT or DELETE."""

INSERT, DELETE = "I", "D"

NOT_CONTAINED = "deferred: rows to be deleted are not there"
"""The error of a statement that finds a row to delete missing."""

BATCH = "_deferred_batch"
"""The column that says with which batch a row was appended to a table."""

GONE = "_deferred_gone"
"""Whether a batch took a key away: then its row has only the key."""


def column(name: str, table: str | None = None) -> exp.Column:
    """A column by its name, always quoted."""
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def alias(expression: exp.Expr, name: str) -> exp.Expr:
    """An expression AS a name, always quoted; a column that already has the name stays as it is."""
    if isinstance(expression, exp.Column) and expression.name == name and not expression.table:
        return expression
    return exp.alias_(expression, exp.to_identifier(name, quoted=True))


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A function call that sqlglot writes out unchanged."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def bigint(value: int | exp.Expr) -> exp.Expr:
    """A number in the type of every signed count."""
    if isinstance(value, int):
        value = exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
    return exp.Cast(this=value, to=exp.DataType.build("BIGINT"))


def unshared(tree: exp.Expr) -> exp.Expr:
    """A tree that can be inserted into another one: a copy, if it is already part of one."""
    return tree if tree.parent is None else tree.copy()


def from_item(source: exp.Expr, name: str | exp.Identifier = "q") -> exp.Expr:
    """A table or query as an item of FROM, under an alias; one that has an alias keeps it."""
    if source.alias:
        return unshared(source)
    alias_ = exp.TableAlias(this=exp.to_identifier(name))
    if isinstance(source, exp.Table):
        table = source.copy()
        table.set("alias", alias_)
        return table
    return exp.Subquery(this=unshared(source), alias=alias_)


def select(outputs: Iterable[exp.Expr], source: exp.Expr, name: str | exp.Identifier = "q") -> exp.Select:
    """SELECT outputs FROM source AS name."""
    return exp.Select(expressions=list(outputs), from_=exp.From(this=from_item(source, name)))


def union_all(queries: Sequence[exp.Query]) -> exp.Query:
    """The queries one after the other, columns by position."""
    result = unshared(queries[0])
    for query in queries[1:]:
        result = exp.Union(this=result, expression=unshared(query), distinct=False)
    return result  # type: ignore[return-value]


def signed(source: exp.Expr, names: Sequence[str], times: int = 1) -> exp.Select:
    """A plain bag as a signed one, every row `times` times."""
    return select([*map(column, names), alias(bigint(times), COUNT)], source)


def negated(source: exp.Expr, names: Sequence[str]) -> exp.Select:
    """A signed bag with its signs reversed."""
    return select([*map(column, names), alias(exp.Neg(this=column(COUNT)), COUNT)], source)


def identity_keys(value: exp.Expr, type_: str) -> list[exp.Expr]:
    """What to group by so that different values of a column stay separate rows and keep their exact form.

    >>> [key.sql() for key in identity_keys(column("x"), "double")]
    ['CAST("x" AS TEXT)']
    """
    return [identity(value, type_)] if equality_is_coarser(type_) else [value]


def same_key(names: Iterable[str], left: str, right: str) -> exp.Expr:
    """The condition that rows of two tables have equal values in some columns, NULL equal to NULL."""
    pairs = [exp.NullSafeEQ(this=column(name, left), expression=column(name, right)) for name in names]
    return exp.and_(*pairs, copy=False)


def identical(columns: Columns, left: str, right: str) -> exp.Expr:
    """The condition that rows of two tables are the same row, bit by bit where SQL equality is coarser."""
    parts: list[exp.Expr] = []
    for name, type_ in columns:
        sides: list[exp.Expr] = [column(name, left), column(name, right)]
        if equality_is_coarser(type_):
            sides = [identity(side, type_) for side in sides]
        parts.append(exp.NullSafeEQ(this=sides[0], expression=sides[1]))
    return exp.and_(*parts, copy=False)


def _representative(value: exp.Expr, type_: str) -> exp.Expr:
    """The value that represents a group of identical rows. Grouping may change the bits of a coarsely compared one."""
    return call("ANY_VALUE", value) if equality_is_coarser(type_) else value


def net(source: exp.Expr, columns: Columns) -> exp.Select:
    """A signed bag in which every row occurs once, with its summed count, and never with zero: strongly minimal.

    >>> print(net(exp.to_table("t"), [("a", "int")]).sql())
    SELECT "a", "_deferred_n" FROM (SELECT "a", CAST(SUM("_deferred_n") AS BIGINT) AS "_deferred_n" FROM t AS q \
GROUP BY "a") AS summed WHERE "_deferred_n" <> 0
    """
    outputs: list[exp.Expr] = []
    keys: list[exp.Expr] = []
    for name, type_ in columns:
        keys.extend(identity_keys(column(name), type_))
        outputs.append(alias(_representative(column(name), type_), name))
    outputs.append(alias(bigint(call("SUM", column(COUNT))), COUNT))
    summed = select(outputs, source)
    if keys:
        summed.set("group", exp.Group(expressions=keys))
    result = select([*(column(name) for name, _ in columns), column(COUNT)], summed, "summed")
    return result.where(exp.NEQ(this=column(COUNT), expression=exp.Literal.number(0)), copy=False)


def summed(source: exp.Expr, names: Sequence[str], counts: Sequence[str]) -> exp.Select:
    """Every row once, with the sums of its counts.

    >>> print(summed(exp.to_table("t"), ["a"], ["n"]).sql())
    SELECT "a", CAST(SUM("n") AS BIGINT) AS "n" FROM t AS q GROUP BY "a"
    """
    totals = [alias(bigint(call("SUM", column(count))), count) for count in counts]
    result = select([*map(column, names), *totals], source)
    result.set("group", exp.Group(expressions=list(map(column, names))))
    return result


def difference(new: exp.Expr, old: exp.Expr, columns: Columns) -> exp.Select:
    """new − old of two signed bags, netted."""
    names = [name for name, _ in columns]
    both = union_all([select([*map(column, names), column(COUNT)], new), negated(old, names)])
    return net(both, columns)


COPIES = 1 << 20
"""How many copies of a row are made of one array: Spark holds an array in memory, and its length is an INT."""


def written_out(source: exp.Expr, names: Sequence[str]) -> exp.Select:
    """A signed bag of positive counts as a plain bag: each row as often as its count says, an array after the other.

    >>> print(written_out(exp.to_table("t"), ["a"]).sql(dialect="spark"))
    SELECT `a` FROM t AS q LATERAL VIEW EXPLODE(SEQUENCE(CAST(0 AS BIGINT), (`_deferred_n` - 1) DIV 1048576)) r \
AS `_deferred_array` LATERAL VIEW EXPLODE(ARRAY_REPEAT(0, CAST(LEAST(1048576, `_deferred_n` - `_deferred_array` * \
1048576) AS INT))) r AS `_deferred_copy`
    """
    number, size = column("_deferred_array"), exp.Literal.number(COPIES)
    last = exp.IntDiv(
        this=exp.Paren(this=exp.Sub(this=column(COUNT), expression=exp.Literal.number(1))), expression=size.copy()
    )
    left = exp.Sub(this=column(COUNT), expression=exp.Mul(this=number.copy(), expression=size.copy()))
    length = exp.Cast(this=call("LEAST", size, left), to=exp.DataType.build("INT"))
    result = select(map(column, names), source)
    arrays = _exploded(call("SEQUENCE", bigint(0), last), number.name)
    copies = _exploded(call("ARRAY_REPEAT", exp.Literal.number(0), length), "_deferred_copy")
    result.set("laterals", [arrays, copies])
    return result


def _exploded(values: exp.Expr, name: str) -> exp.Lateral:
    alias_ = exp.TableAlias(this=exp.to_identifier("r"), columns=[exp.to_identifier(name, quoted=True)])
    return exp.Lateral(this=call("EXPLODE", values), view=True, alias=alias_)


def positive(source: exp.Expr, names: Sequence[str]) -> exp.Select:
    """Δ: the inserted rows of a netted signed bag, with their counts."""
    return select([*map(column, names), column(COUNT)], source).where(
        exp.GT(this=column(COUNT), expression=exp.Literal.number(0)), copy=False
    )


def negative(source: exp.Expr, names: Sequence[str]) -> exp.Select:
    """−∇: the deleted rows of a netted signed bag, with their negative counts."""
    return select([*map(column, names), column(COUNT)], source).where(
        exp.LT(this=column(COUNT), expression=exp.Literal.number(0)), copy=False
    )


def matching(source: exp.Expr, names: Sequence[str], other: exp.Expr, columns: Columns) -> exp.Select:
    """source ⋉ other: the rows that have an identical one in the other bag, by some columns.

    >>> print(matching(exp.to_table("t"), ["a", "b"], exp.to_table("u"), [("a", "int")]).sql(dialect="spark"))
    SELECT l.`a`, l.`b` FROM t AS l LEFT SEMI JOIN u AS r ON l.`a` IS NOT DISTINCT FROM r.`a`
    """
    return _semi_join(source, names, other, identical(columns, "l", "r"), "SEMI")


def unmatched(source: exp.Expr, names: Sequence[str], other: exp.Expr, key: Sequence[str]) -> exp.Select:
    """source ▷ other: the rows that have no equal in the other bag, by some columns."""
    return _semi_join(source, names, other, same_key(key, "l", "r"), "ANTI")


def _semi_join(source: exp.Expr, names: Sequence[str], other: exp.Expr, on: exp.Expr, kind: str) -> exp.Select:
    # A join, not EXISTS: inside a subquery an alias would lose against a column of its name.
    joined = exp.Join(this=from_item(other, "r"), side="LEFT", kind=kind, on=on)
    result = select([column(name, "l") for name in names], source, "l")
    result.set("joins", [joined])
    return result


def totals(source: exp.Expr) -> exp.Select:
    """The number of rows that a signed bag deletes and inserts: one row with `deleted` and `inserted`.

    >>> print(totals(exp.to_table("t")).sql())
    SELECT COALESCE(SUM(CASE WHEN "_deferred_n" < 0 THEN -"_deferred_n" END), 0) AS deleted, \
COALESCE(SUM(CASE WHEN "_deferred_n" > 0 THEN "_deferred_n" END), 0) AS inserted FROM t AS q
    """
    zero = exp.Literal.number(0)
    deleted = exp.If(this=exp.LT(this=column(COUNT), expression=zero), true=exp.Neg(this=column(COUNT)))
    inserted = exp.If(this=exp.GT(this=column(COUNT), expression=zero.copy()), true=column(COUNT))
    return select(
        [
            exp.alias_(call("COALESCE", call("SUM", exp.Case(ifs=[when])), exp.Literal.number(0)), name)
            for name, when in (("deleted", deleted), ("inserted", inserted))
        ],
        source,
    )


def change_columns(columns: Columns) -> tuple[str, str]:
    """The names of the two columns of `described`, made longer where the table has columns of these names.

    >>> change_columns([("a", "int")]), change_columns([("_Count", "int")])
    (('_change', '_count'), ('_change', '__count'))
    """
    taken = {name.casefold() for name, _ in columns}
    change, times = (
        next(name for i in range(1, len(taken) + 2) if (name := "_" * i + word) not in taken)
        for word in ("change", "count")
    )
    return change, times


def described(source: exp.Expr, columns: Columns) -> exp.Select:
    """A netted signed bag in readable form: each row with insert or delete (_change) and how often (_count)."""
    change, times = change_columns(columns)
    inserted = exp.GT(this=column(COUNT), expression=exp.Literal.number(0))
    word = exp.Case(
        ifs=[exp.If(this=inserted, true=exp.Literal.string("insert"))], default=exp.Literal.string("delete")
    )
    return select(
        [
            *(column(name) for name, _ in columns),
            alias(word, change),
            alias(call("ABS", column(COUNT)), times),
        ],
        source,
    )


def insert_into(target: exp.Table, names: Sequence[str], rows: exp.Expr) -> exp.Insert:
    """INSERT INTO target (names) rows."""
    listed = [exp.to_identifier(name, quoted=True) for name in names]
    return exp.Insert(this=exp.Schema(this=target.copy(), expressions=listed), expression=rows.copy())


def overwrite(target: exp.Table, names: Sequence[str], rows: exp.Expr) -> exp.Insert:
    """INSERT OVERWRITE: the rows replace everything in the table."""
    statement = insert_into(target, names, rows)
    statement.set("overwrite", True)
    return statement


def merge_by_key(
    target: exp.Table,
    names: Sequence[str],
    key: Sequence[str],
    updated: Sequence[str],
    rows: exp.Expr,
    gone: exp.Expr | None,
    near: exp.Expr | None = None,
) -> exp.Merge:
    """One MERGE on a key: `rows` update the rows with their keys or are inserted; rows with the keys in `gone` go.

    `near` is a condition on the key that holds for all these keys.
    """
    source: exp.Query = _marked(rows, list(map(column, names)), INSERT)
    if gone is not None:
        padded = [column(name) if name in key else alias(exp.Null(), name) for name in names]
        source = union_all([source, _marked(gone, padded, DELETE)])
    update = exp.Update(expressions=[exp.EQ(this=column(n, "t"), expression=column(n, "s")) for n in updated])
    whens = [
        exp.When(matched=True, condition=_is(DELETE), then=exp.Var(this="DELETE")),
        exp.When(matched=True, then=update),
        exp.When(matched=False, condition=_is(INSERT), then=_inserted(names)),
    ]
    return _merge(target, source, _both(same_key(key, "t", "s"), near), whens)


def appended(rows: exp.Expr, names: Sequence[str], key: Sequence[str], gone: exp.Expr | None, batch: int) -> exp.Query:
    """What a batch appends to a table that keeps the rows of all batches: new rows, and keys that it takes away."""

    def tagged(source: exp.Expr, columns: Iterable[exp.Expr], is_gone: bool) -> exp.Select:
        return select([*columns, alias(bigint(batch), BATCH), alias(exp.Boolean(this=is_gone), GONE)], source)

    new = tagged(rows, map(column, names), False)
    if gone is None:
        return new
    padded = [column(name) if name in key else alias(exp.Null(), name) for name in names]
    return union_all([new, tagged(gone, padded, True)])


def newest(rows: exp.Expr, names: Sequence[str], key: Sequence[str]) -> exp.Select:
    """Of each key the row of the newest batch, unless that batch took the key away.

    >>> print(newest(exp.to_table("t"), ["k", "n"], ["k"]).sql(dialect="spark"))
    SELECT _deferred_newest.`k`, _deferred_newest.`n` FROM (SELECT MAX_BY(STRUCT(`k`, `n`, `_deferred_gone`), \
`_deferred_batch`) AS `_deferred_newest` FROM t AS q GROUP BY `k`) AS q WHERE NOT _deferred_newest.`_deferred_gone`
    """
    whole = "_deferred_newest"
    values = call("STRUCT", *map(column, [*names, GONE]))
    grouped = select([alias(call("MAX_BY", values, column(BATCH)), whole)], rows)
    grouped.set("group", exp.Group(expressions=[column(name) for name in key]))
    result = select([column(name, whole) for name in names], grouped)
    return result.where(exp.Not(this=column(GONE, whole)), copy=False)


def multiplicities(target: exp.Expr, columns: Columns, changes: exp.Expr, near: exp.Expr | None = None) -> exp.Select:
    """How many copies (PRESENT) a table holds of each row that a netted signed bag deletes, beside its count.

    `near` is a condition that holds for all these rows.
    """
    names = [name for name, _ in columns]
    outputs: list[exp.Expr] = []
    keys: list[exp.Expr] = []
    for name, type_ in columns:
        keys.extend(identity_keys(column(name, "d"), type_))
        outputs.append(alias(_representative(column(name, "d"), type_), name))
    outputs.append(alias(call("ANY_VALUE", column(COUNT, "d")), COUNT))
    outputs.append(alias(call("COUNT", column(COUNT, "t")), PRESENT))
    rows = signed(target, names)
    if near is not None:
        rows.where(near.copy(), copy=False)
    held = exp.Join(this=from_item(rows, "t"), side="LEFT", on=identical(columns, "d", "t"))
    result = select(outputs, negative(changes, names), "d")
    result.set("joins", [held])
    result.set("group", exp.Group(expressions=keys))
    broadcast = exp.JoinHint(this="BROADCAST", expressions=[exp.to_table("d")])
    result.set("hint", exp.Hint(expressions=[broadcast]))
    return result


def missing(present: exp.Expr) -> exp.Select:
    """How many rows (n) are to be deleted more often than they are present: none where ∇R ⊆ R."""
    result = select([exp.alias_(call("COUNT", exp.Star()), "n")], present)
    return result.where(exp.LT(this=_remaining(), expression=exp.Literal.number(0)), copy=False)


def merge_by_row(
    target: exp.Table, columns: Columns, changes: exp.Expr, present: exp.Expr, near: exp.Expr | None = None
) -> exp.Merge:
    """R := (R ∸ ∇R) ⊎ ΔR by one MERGE on whole rows, for the `multiplicities` of the deleted ones.

    A MERGE cannot delete only some copies of a row: all copies are deleted, and those that remain are inserted again.
    `near` is a condition that holds for all deleted rows.
    """
    names = [name for name, _ in columns]
    outputs = list(map(column, names))
    rest = select([*map(column, names), alias(_remaining(), COUNT)], present)
    rest = rest.where(exp.GT(this=_remaining(), expression=exp.Literal.number(0)), copy=False)
    source = union_all(
        [
            _marked(present, outputs, DELETE),
            _marked(written_out(rest, names), outputs, INSERT),
            _marked(written_out(positive(changes, names), names), outputs, INSERT),
        ]
    )
    on = exp.and_(_is(DELETE), identical(columns, "t", "s"), copy=False)
    whens = [
        exp.When(matched=True, then=exp.Var(this="DELETE")),
        exp.When(matched=False, condition=_is(INSERT), then=_inserted(names)),
    ]
    return _merge(target, source, _both(on, near), whens)


def merge_nothing(target: exp.Table) -> exp.Merge:
    """A MERGE that changes no row: its condition never holds."""
    one = exp.Select(expressions=[alias(exp.Literal.number(1), "one")])
    return _merge(target, one, exp.false(), [exp.When(matched=True, then=exp.Var(this="DELETE"))])


def replace_where(target: exp.Table, names: Sequence[str], condition: exp.Expr, rows: exp.Expr) -> exp.Insert:
    """One commit that replaces the rows of a table for which a condition holds, by rows for which it holds."""
    listed = select([column(name) for name in names], rows)
    return exp.Insert(this=target.copy(), where=condition.copy(), expression=listed)


def changed_rows(target: exp.Table, columns: Columns, condition: exp.Expr, changes: exp.Expr) -> exp.Select:
    """(R ∸ ∇R) ⊎ ΔR where a condition holds that holds for every row of ∇R and ΔR. Fails where ∇R ⊆ R does not hold."""
    held = signed(target, [name for name, _ in columns]).where(condition.copy(), copy=False)
    return _changed(held, columns, changes)


def with_changes(target: exp.Expr, columns: Columns, changes: exp.Expr) -> exp.Query:
    """(R ∸ ∇R) ⊎ ΔR for a netted signed bag of few rows. Fails where ∇R ⊆ R does not hold.

    Rows that no change deletes are only passed through: R itself is neither grouped nor sent anywhere.
    """
    names = [name for name, _ in columns]
    deleted = negative(changes, names)
    same = identical(columns, "l", "r")
    untouched = _semi_join(target, names, deleted, same, "ANTI")
    touched = signed(_semi_join(target, names, deleted, same.copy(), "SEMI"), names)
    return union_all([untouched, _changed(touched, columns, changes)])


def _changed(held: exp.Query, columns: Columns, changes: exp.Expr) -> exp.Select:
    """The rows of a signed bag and of its changes together, written out."""
    names = [name for name, _ in columns]
    both = union_all([held, select([*map(column, names), column(COUNT)], changes)])
    missing_ = call("RAISE_ERROR", exp.Literal.string(NOT_CONTAINED))
    checked = exp.Case(
        ifs=[exp.If(this=exp.LT(this=column(COUNT), expression=exp.Literal.number(0)), true=missing_)],
        default=column(COUNT),
    )
    remaining = select([*map(column, names), alias(bigint(checked), COUNT)], net(both, columns))
    return written_out(remaining, names)


def _both(on: exp.Expr, near: exp.Expr | None) -> exp.Expr:
    """The condition of a MERGE, with one on its target alone, by which Delta leaves out files."""
    if near is None:
        return on
    own = near.transform(lambda node: column(node.name, "t") if isinstance(node, exp.Column) else node)
    return exp.and_(on, own, copy=False)


def _remaining() -> exp.Expr:
    """The number of copies of a row that remain: PRESENT plus COUNT, which is negative."""
    return exp.Add(this=column(PRESENT), expression=column(COUNT))


def _marked(source: exp.Expr, outputs: Sequence[exp.Expr], operation: str) -> exp.Select:
    return select([*(o.copy() for o in outputs), alias(exp.Literal.string(operation), OPERATION)], source)


def _is(operation: str) -> exp.Expr:
    return exp.EQ(this=column(OPERATION, "s"), expression=exp.Literal.string(operation))


def _inserted(names: Sequence[str]) -> exp.Insert:
    return exp.Insert(
        this=exp.Tuple(expressions=list(map(column, names))),
        expression=exp.Tuple(expressions=[column(name, "s") for name in names]),
    )


def _merge(target: exp.Table, source: exp.Query, on: exp.Expr, whens: Sequence[exp.When]) -> exp.Merge:
    return exp.Merge(
        this=from_item(target, "t"), using=from_item(source, "s"), on=on, whens=exp.Whens(expressions=list(whens))
    )
