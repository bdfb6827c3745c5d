"""Binding of window functions and QUALIFY."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from deferred.algebra.aggregates.calls import aggregate_of, is_aggregate, name_of
from deferred.algebra.aggregates.registry import WindowOrder
from deferred.algebra.operators import Filter, Project, Window
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, column, rewrite
from deferred.algebra.types import FLOATING
from deferred.algebra.window_functions import Shown, call_of, filter_of, function_of, ignores_nulls
from deferred.errors import NondeterministicSQLError, UnknownObjectError, UnsupportedSQLError
from deferred.sql.dialect import as_written, text
from deferred.sql.functions import collects_in_any_order
from deferred.sql.order_free import order_free

if TYPE_CHECKING:
    from deferred.sql.bind import Binder
    from deferred.sql.scope import Scope


def inside(window: exp.Window) -> Iterator[exp.Expr]:
    """What a window reads: the arguments of its function, its partition and order, not the function itself."""
    yield from call_of(window).iter_expressions()
    clauses = (window.args.get("order"), window.args.get("spec"))
    for part in (filter_of(window), *(window.args.get("partition_by") or []), *clauses):
        if isinstance(part, exp.Expr):
            yield part


def rewritten_inside(window: exp.Window, change: Callable[[Scalar], Scalar]) -> exp.Window:
    """A window with all that it reads changed, not the function itself: COUNT(*) OVER () is no COUNT(*) of a group."""
    result = window.copy()
    for part in list(inside(result)):
        part.replace(change(part))
    return result


def windowed(
    binder: Binder,
    node: exp.Select,
    plan: Plan,
    scope: Scope,
    items: Sequence[tuple[str, exp.Expr]],
    resolved: list[Scalar],
) -> tuple[Plan, list[Scalar]]:
    """Window functions of SELECT and QUALIFY, below the projection; one node per set of partition columns."""
    qualify = node.args.get("qualify")
    expressions = list(resolved)
    if qualify is not None:
        aliases: dict[str, list[Scalar]] = {}
        for (name, _), e in zip(items, resolved, strict=True):
            aliases.setdefault(name.casefold(), []).append(e)
        expressions.append(binder.scalar(qualify.this, scope, "QUALIFY", aliases))
    for expression in expressions:
        for part in expression.find_all(exp.Window):
            _check(part)
    expressions = [
        rewrite(rewrite(e, _range_frame_as_rows), lambda part: _over_ordered_rows(binder, part)) for e in expressions
    ]
    while found := _innermost(expressions):
        plan, names = _added(binder, plan, found)
        expressions = [_with_columns(e, names) for e in expressions]
    if qualify is not None:
        plan = Filter(plan, expressions.pop())
    return plan, expressions


def _with_columns(expression: Scalar, names: Sequence[tuple[exp.Window, str]]) -> Scalar:
    """An expression with its windows replaced by the columns that hold their values."""
    return rewrite(
        expression,
        lambda part: (
            next((column(name) for window, name in names if part == window), None)
            if isinstance(part, exp.Window)
            else None
        ),
    )


def _innermost(expressions: Sequence[Scalar]) -> list[exp.Window]:
    """The windows that read no other window's result, each once."""
    found: list[exp.Window] = []
    for part in (window for e in expressions for window in e.find_all(exp.Window)):
        if part not in found and len(list(part.find_all(exp.Window))) == 1:
            found.append(part)
    return found


_PEERS = (("UNBOUNDED", "PRECEDING"), ("CURRENT ROW", None))
_ALL = (("UNBOUNDED", "PRECEDING"), ("UNBOUNDED", "FOLLOWING"))


def _range_frame_as_rows(part: Scalar) -> Scalar | None:
    """A function that shows one row of a RANGE frame, rewritten over a frame of ROWS.

    Rows can be put in one order by their own values, and a frame of rows then has a last and an n-th; to order the
    peers inside a RANGE frame would change the frame. The last value is that of the last peer, the n-th is there
    once the frame has n rows. Without ORDER BY all rows are peers, in a frame of all of them.
    """
    if not isinstance(part, exp.Window):
        return None
    function, ignoring, frame = function_of(part), ignores_nulls(part), _frame(part)
    if function is None or function.shown is None or frame is None:
        return None
    if not part.args.get("order"):
        return _over_rows(part, _ALL)
    if function.shown is Shown.FIRST and not ignoring and frame == _PEERS:
        return None
    if frame == _ALL:
        return _over_rows(part, _ALL)
    if frame != _PEERS:
        raise NondeterministicSQLError(
            f"{as_written(part)[:80]} shows one of the rows that ORDER BY leaves equal at the edge of the frame. "
            f"Write the frame with ROWS.",
            at=part,
        )
    if function.shown is Shown.LAST:
        peers = _over_rows(part, _ALL)
        keys = [key.this.copy() for key in part.args["order"].expressions]
        peers.set("partition_by", [*(peers.args.get("partition_by") or []), *keys])
        before = [_over_rows(part, _PEERS)] if ignoring else []
        return exp.Anonymous(this="COALESCE", expressions=[peers, *before]) if ignoring else peers
    argument, *place = call_of(part).expressions
    counted = exp.Anonymous(this="COUNT", expressions=[argument.copy() if ignoring else exp.Star()])
    so_far = exp.Window(
        this=counted,
        partition_by=[e.copy() for e in part.args.get("partition_by") or []],
        order=part.args["order"].copy(),
        over="OVER",
    )
    number = place[0].copy() if place and function.shown is Shown.NTH else exp.Literal.number(1)
    enough = exp.GTE(this=so_far, expression=number)
    return exp.Case(ifs=[exp.If(this=enough, true=_over_rows(part, _ALL))])


def _over_ordered_rows(binder: Binder, part: Scalar) -> Scalar | None:
    """A function whose value depends on the order of its rows, over rows in one order.

    Over a frame of ROWS the order is completed by the rows' own values (`Window.with_ties_broken`). So a whole
    partition becomes a frame of all its rows. A frame that ends with the peers of the current row becomes the frame of
    rows that ends with the last of them. Any other RANGE frame is folded over its sorted values.
    """
    if not isinstance(part, exp.Window):
        return None
    call = part.this.this if isinstance(part.this, exp.Filter) else part.this
    function, arguments = aggregate_of(call), call.expressions
    if function is None or function.window_order is WindowOrder.ANY:
        return None
    if function.window_order is WindowOrder.FORM:
        form = order_free(part.this, binder.type_of)
        return None if form == part.this else _over_window(form, part)
    if function.window_order is WindowOrder.ONE_IF_FLOATING and (
        len(arguments) != 1 or binder.type_of(arguments[0]).lower() not in FLOATING
    ):
        return None
    order = part.args.get("order")
    if not order:
        result = part.copy() if part.args.get("spec") else _over_rows(part, _ALL)
        result.set("order", exp.Order(expressions=[exp.Ordered(this=arguments[0].copy(), nulls_first=True)]))
        return result
    frame = _frame(part)
    if frame is None:
        return None
    if frame == _ALL:
        return _over_rows(part, _ALL)
    if frame != _PEERS:
        return _over_window(order_free(part.this, binder.type_of), part)
    over = {"partition_by": part.args.get("partition_by") or [], "order": order}
    number = exp.Window(this=exp.Anonymous(this="ROW_NUMBER"), over="OVER", **{k: _copied(v) for k, v in over.items()})
    keys = [*over["partition_by"], *(key.this for key in order.expressions)]
    return exp.Window(
        this=exp.Anonymous(this="MAX_BY", expressions=[_over_rows(part, _PEERS), number]),
        partition_by=_copied(keys),
        over="OVER",
    )


def _copied(value: list[exp.Expr] | exp.Expr) -> list[exp.Expr] | exp.Expr:
    return [e.copy() for e in value] if isinstance(value, list) else value.copy()


def _over_window(expression: Scalar, window: exp.Window) -> Scalar:
    """An expression of aggregates, each of them over the window."""

    def over(part: Scalar) -> Scalar | None:
        inner = part.this if isinstance(part, exp.Filter) else part
        if not is_aggregate(inner):
            return None
        result = window.copy()
        result.set("this", part.copy())
        return result

    return rewrite(expression, over)


def _frame(window: exp.Window) -> tuple[tuple[str, str | None], tuple[str, str | None]] | None:
    """The bounds of a RANGE frame, None for one of ROWS."""
    spec = window.args.get("spec")
    if spec is None:
        return _PEERS  # type: ignore[return-value]
    if str(spec.args.get("kind", "")).upper() != "RANGE":
        return None
    start, end = (
        (_bound(spec.args.get(edge)), _bound(spec.args.get(f"{edge}_side")) or None) for edge in ("start", "end")
    )
    return start, end if end[0] else _PEERS[1]


def _bound(edge: object) -> str:
    return text(edge) if isinstance(edge, exp.Expr) else str(edge or "").upper()


def _over_rows(window: exp.Window, bounds: tuple[tuple[str, str | None], ...]) -> exp.Window:
    result = window.copy()
    (start, start_side), (end, end_side) = bounds
    result.set("spec", exp.WindowSpec(kind="ROWS", start=start, start_side=start_side, end=end, end_side=end_side))
    return result


def _added(binder: Binder, plan: Plan, found: Sequence[exp.Window]) -> tuple[Plan, list[tuple[exp.Window, str]]]:
    names: list[tuple[exp.Window, str]] = []
    groups: dict[tuple[str, ...], list[tuple[str, exp.Window]]] = {}
    computed: list[tuple[str, Scalar]] = []
    for window in found:
        keys = []
        for expression in window.args.get("partition_by") or []:
            if isinstance(expression, exp.Column):
                keys.append(expression.name)
                continue
            known = next((i for i, e in computed if e == expression), None)
            if known is None:
                known = binder.new_column(binder.types.of([expression], binder.column_types)[0])
                computed.append((known, expression))
            keys.append(known)
        full = window.copy()
        full.set("partition_by", [column(k) for k in keys])
        name = binder.new_column(binder.types.of([full], binder.column_types)[0])
        names.append((window, name))
        groups.setdefault(tuple(sorted(set(keys))), []).append((name, full))
    if computed:
        plan = Project(plan, (*((c, column(c)) for c in plan.columns), *computed))
    for keys_, functions in groups.items():
        plan = node = Window(plan, keys_, tuple(functions))
        for (_, asked), (_, function) in zip(node.functions, node.with_ties_broken, strict=True):
            if function != asked:
                binder.choices[str(next(filter(None, map(name_of, asked.this.walk())))).upper()] = None
        if not keys_:
            binder.notes.append(
                "A window without PARTITION BY is computed again at every change, over all its rows, which are kept."
            )
    return plan, names


def inline_named_windows(node: exp.Select) -> exp.Select:
    """A SELECT with every OVER w replaced by the definition in WINDOW w AS (…).

    >>> from deferred.sql.dialect import parse_query
    >>> text(inline_named_windows(parse_query("SELECT SUM(a) OVER w FROM t WINDOW w AS (PARTITION BY b)")))
    'SELECT SUM(a) OVER (PARTITION BY b) FROM t'
    """
    definitions = {named.name.casefold(): named for named in node.args.get("windows") or []}

    def inlined(part: Scalar) -> Scalar | None:
        if isinstance(part, exp.Query) and part is not plain:
            return part.copy()  # a subquery has its own WINDOW clause
        if not isinstance(part, exp.Window) or part.args.get("alias") is None:
            return None
        alias = part.args["alias"].name
        if alias.casefold() not in definitions:
            raise UnknownObjectError(
                f"OVER {alias}: the query has no WINDOW {alias}. Define it with WINDOW {alias} AS (…).",
                at=part,
            )
        result = part.copy()
        result.set("alias", None)
        for clause in ("partition_by", "order", "spec"):
            value = definitions[alias.casefold()].args.get(clause)
            if not result.args.get(clause) and value:
                result.set(clause, [e.copy() for e in value] if isinstance(value, list) else value.copy())
        return result

    plain = node.copy()
    plain.set("windows", None)
    result = plain.transform(lambda part: inlined(part) or part, copy=False)
    assert isinstance(result, exp.Select)
    return result


def _check(window: exp.Window) -> None:
    call = call_of(window)
    is_known_aggregate = aggregate_of(call) is not None and not collects_in_any_order(call)
    if function_of(window) is None and not is_known_aggregate:
        raise UnsupportedSQLError(f"The window function {text(window)[:80]} is not supported in a view.", at=window)
