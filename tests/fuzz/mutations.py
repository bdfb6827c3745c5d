"""Edits of a view's text, as people make them: conditions, columns, branches, order of clauses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from sqlglot import exp

from deferred.algebra.scalar import conjunction, conjuncts
from deferred.sql.dialect import ViewSQL, parse_query

Edit = Callable[[exp.Query, Random], exp.Query]


def mutated(sql: str, random: Random, edits: int, kinds: Sequence[Edit] | None = None) -> str:
    """A query with some edits; an edit for which a clause is missing is none, and another one is tried."""
    query = parse_query(sql)
    for _ in range(edits):
        before, tries = query.sql(dialect=ViewSQL), 0
        while query.sql(dialect=ViewSQL) == before and tries < 10:
            query, tries = random.choice(kinds or EDITS)(query, random), tries + 1
    return query.sql(dialect=ViewSQL)


def summed(sql: str) -> str:
    """Groups over a query by its first column, so that its conditions and branches are below them."""
    query = parse_query(sql)
    names = [f"of_{place}" for place in range(len(query.selects))]
    if any(item.is_star for item in query.selects):
        return sql
    listed = ", ".join(names)
    values = "".join(f", MAX({name}) AS most_{name}" for name in names[1:])
    return f"SELECT of_0, COUNT(*) AS n{values} FROM ({sql}) AS below({listed}) GROUP BY of_0"


def aliased(sql: str) -> str:
    """The query in which names of its own items are used: by groups, by conditions on these, and by another item."""
    query = parse_query(sql)
    if not isinstance(query, exp.Select) or any(item.is_star for item in query.expressions):
        return sql
    names = {f"named_{place}": item.unalias() for place, item in enumerate(query.expressions)}
    known = {value.sql(dialect=ViewSQL): name for name, value in names.items()}

    def named(node: exp.Expr) -> exp.Expr:
        name = known.get(node.sql(dialect=ViewSQL)) if isinstance(node, (exp.Column, exp.AggFunc)) else None
        return node if name is None else exp.column(name)

    query.set("expressions", [exp.alias_(value, name) for name, value in names.items()])
    group = query.args.get("group")
    if group:
        group.set("expressions", [named(key) for key in group.expressions])
        if query.args.get("having"):
            query.set("having", query.args["having"].transform(named))
    elif not query.args.get("distinct") and any(isinstance(value, exp.Column) for value in names.values()):
        name = next(name for name, value in names.items() if isinstance(value, exp.Column))
        query.select(
            exp.alias_(exp.Coalesce(this=exp.column(name), expressions=[exp.column(name)]), "lateral"), copy=False
        )
    return query.sql(dialect=ViewSQL)


def _selects(query: exp.Query) -> list[exp.Select]:
    """The outermost SELECTs: the query itself, or the branches of a set operation."""
    if isinstance(query, exp.SetOperation):
        return [s for side in (query.this, query.expression) for s in _selects(side.unnest())]
    return [query] if isinstance(query, exp.Select) else []


def narrowed(query: exp.Query, random: Random) -> exp.Query:
    """One more condition, on a column that the query shows."""
    for select in random.sample(_selects(query), min(1, len(_selects(query)))):
        columns = [item.unalias() for item in select.expressions if isinstance(item.unalias(), exp.Column)]
        if columns:
            condition = random.choice((exp.Is(this=random.choice(columns).copy(), expression=exp.Null()), None))
            value = random.choice(columns).copy()
            condition = condition or exp.EQ(this=value, expression=value.copy())
            select.where(condition if random.random() < 0.5 else exp.Not(this=condition), copy=False)
    return query


def widened(query: exp.Query, random: Random) -> exp.Query:
    """One condition less, or the opposite one."""
    for select in _selects(query):
        where = select.args.get("where")
        if where is None:
            continue
        parts = conjuncts(where.this)
        place = random.randrange(len(parts))
        parts[place : place + 1] = random.choice(([], [exp.Not(this=exp.Paren(this=parts[place].copy()))]))
        rest = conjunction(parts)
        select.set("where", None if rest is None else exp.Where(this=rest))
        break
    return query


def filtered_below(query: exp.Query, random: Random) -> exp.Query:
    """Another condition anywhere below: in a subquery, a common table expression or a branch."""
    selects = list(query.find_all(exp.Select))
    select = random.choice(selects[1:] or selects)
    if select.args.get("where") is not None and random.random() < 0.6:
        widened(select, random)
    else:
        narrowed(select, random)
    return query


def another_set_branch(query: exp.Query, random: Random) -> exp.Query:
    """A branch more of a UNION, or one less; anywhere."""
    unions = [union for union in query.find_all(exp.Union) if union.args.get("distinct")]
    if not unions:
        return query
    union = random.choice(unions)
    if random.random() < 0.5 and isinstance(union.this.unnest(), exp.Union):
        union.set("this", union.this.unnest().this)
        return query
    branch = random.choice(_selects(union) or [None])
    if branch is not None and not any(branch.args.get(c) for c in ("order", "limit", "offset", "with_")):
        more = exp.Union(this=union.this, expression=union.expression, distinct=True)
        union.set("this", more)
        union.set("expression", widened(branch.copy(), random))
    return query


def shown_otherwise(query: exp.Query, random: Random) -> exp.Query:
    """A column less, or twice, or in another place."""
    if isinstance(query, exp.Select) and len(query.expressions) > 1:
        items = list(query.expressions)
        place = random.randrange(len(items))
        moved = items.pop(place)
        if random.random() < 0.5:
            items.append(moved)
        query.set("expressions", items)
    return query


def computed_otherwise(query: exp.Query, random: Random) -> exp.Query:
    """Another value in the place of a column, or a column more, made of what the query shows."""
    if isinstance(query, exp.Select) and not query.args.get("distinct"):
        places = [i for i, item in enumerate(query.expressions) if isinstance(item.unalias(), exp.Column)]
        if places:
            place = random.choice(places)
            item = query.expressions[place]
            value = random.choice([query.expressions[i].unalias() for i in places]).copy()
            kinds = (exp.Is(this=value, expression=exp.Null()), exp.Coalesce(this=value, expressions=[value.copy()]))
            made = random.choice(kinds)
            if random.random() < 0.5:
                query.select(exp.alias_(made, f"more{random.randrange(1000)}"), copy=False)
            else:
                item.replace(exp.alias_(made, item.alias_or_name))
    return query


def written_otherwise(query: exp.Query, random: Random) -> exp.Query:
    """The same in other words: common table expressions under other names, or the whole query as one of them."""
    clause = query.args.get("with_")
    if clause is None:
        names = [item.alias_or_name for item in query.selects]
        if all(names) and "*" not in names and len(set(names)) == len(names):
            shown = [exp.column(name) for name in names]
            return exp.select(*shown).from_("the_query").with_("the_query", as_=query)
        return query
    for cte in clause.expressions:
        name, other = cte.alias, f"renamed_{cte.alias}"
        for table in query.find_all(exp.Table):
            if table.name == name and not table.args.get("db"):
                if not table.alias:  # its columns are named by it
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
                table.set("this", exp.to_identifier(other))
        cte.args["alias"].set("this", exp.to_identifier(other))
    return query


def join_removed(query: exp.Query, random: Random) -> exp.Query:
    """A table less, of which nothing is asked but what it is joined by, with what is shown of it."""
    joins = query.args.get("joins")
    if isinstance(query, exp.Select) and joins and not query.args.get("group"):
        where = query.args.get("where")
        asked = [*joins, *([] if where is None else [where])]
        removable = [
            join for join in joins if not any(_reads(part, join.alias_or_name) for part in asked if part is not join)
        ]
        gone = random.choice(removable) if removable else None
        items = [] if gone is None else [item for item in query.expressions if not _reads(item, gone.alias_or_name)]
        if gone is not None and items:
            gone.pop()
            query.set("expressions", items)
    return query


def _reads(expression: exp.Expr, table: str) -> bool:
    return any(column.table == table for column in expression.find_all(exp.Column))


def joined_otherwise(query: exp.Query, random: Random) -> exp.Query:
    """One more condition of a join, or one less that does not equate two columns."""
    joins = [join for join in query.find_all(exp.Join) if join.args.get("on") is not None]
    if joins:
        join = random.choice(joins)
        parts = conjuncts(join.args["on"])
        columns = list(join.args["on"].find_all(exp.Column))
        others = [part for part in parts if not isinstance(part, exp.EQ)]
        if others and random.random() < 0.5:
            parts.remove(random.choice(others))
        elif columns:
            parts.append(exp.Not(this=exp.Is(this=random.choice(columns).copy(), expression=exp.Null())))
        if parts:
            join.set("on", conjunction(parts))
    return query


def another_branch(query: exp.Query, random: Random) -> exp.Query:
    """Its first SELECT once more, or a branch less."""
    if isinstance(query, exp.Union) and not query.args.get("distinct") and random.random() < 0.5:
        one = query.this.unnest()
        if isinstance(one, exp.Query) and not (one.args.get("with_") and query.args.get("with_")):
            one.set("with_", query.args.get("with_") or one.args.get("with_"))
            return one
        return query
    clauses = ("order", "limit", "offset", "with_")
    if isinstance(query, (exp.Select, exp.Union)) and not any(query.args.get(c) for c in clauses):
        copy = _selects(query)[0].copy() if _selects(query) else query.copy()
        return exp.Union(this=query, expression=widened(copy, random), distinct=False)
    return query


def filtered_groups(query: exp.Query, random: Random) -> exp.Query:
    """One more condition on groups."""
    if isinstance(query, exp.Select) and query.args.get("group"):
        shown = [item.unalias() for item in query.expressions]
        query.having(exp.Not(this=exp.Is(this=random.choice(shown).copy(), expression=exp.Null())), copy=False)
    return query


def another_aggregate(query: exp.Query, random: Random) -> exp.Query:
    """One more aggregate of a column that an aggregate reads, or of none."""
    if isinstance(query, exp.Select) and query.args.get("group") and not query.args.get("distinct"):
        read = [
            node
            for item in query.expressions
            for call in item.find_all(exp.AggFunc)
            for node in call.find_all(exp.Column)
        ]
        calls: list[exp.Expr] = [exp.Count(this=exp.Star())]
        if read:
            value = random.choice(read)
            calls += [kind(this=value.copy()) for kind in (exp.Min, exp.Max, exp.Count)]
        query.select(exp.alias_(random.choice(calls), f"more{random.randrange(1000)}"), copy=False)
    return query


def other_aggregates(query: exp.Query, random: Random) -> exp.Query:
    """Another value in the place of an aggregate: a part of a sum, the other extreme, whether there is one."""
    if isinstance(query, exp.Select):
        calls = [
            call for item in query.expressions for call in item.find_all(exp.AggFunc) if not call.find(exp.Distinct)
        ]
        calls = [call for call in calls if not isinstance(call.parent, (exp.Filter, exp.Window, exp.WithinGroup))]
        if calls:
            call = random.choice(calls)
            made: list[exp.Expr] = [exp.Coalesce(this=call.copy(), expressions=[call.copy()])]
            if isinstance(call, exp.Count):
                made.append(exp.Paren(this=exp.Add(this=call.copy(), expression=exp.Literal.number(1))))
            if type(call) in _OTHERS:
                made.append(_OTHERS[type(call)](this=call.this.copy()))
            call.replace(random.choice(made))
    return query


_OTHERS: Mapping[type[exp.Expr], type[exp.Expr]] = {exp.Min: exp.Max, exp.Max: exp.Min}


def rows_of_a_total(query: exp.Query, random: Random) -> exp.Query:
    """The rows below a total, with a constant for each aggregate; or the groups without their keys: their total."""
    if isinstance(query, exp.Select) and not any(query.args.get(c) for c in ("having", "order", "distinct")):
        calls = [call for item in query.expressions for call in item.find_all(exp.AggFunc)]
        if not query.args.get("group") and calls and not query.find(exp.Window):
            for item in query.expressions:
                value = item.unalias()
                value.replace(exp.cast(exp.Literal.number(1), random.choice(("bigint", "int"))))
        elif query.args.get("group"):
            items = [item for item in query.expressions if item.find(exp.AggFunc)]
            if items:
                query.set("group", None)
                query.set("expressions", items)
    return query


def other_groups(query: exp.Query, random: Random) -> exp.Query:
    """Without a condition on groups, or with another one; not of grouping sets, whose total of no rows is not Spark's."""
    having, group = query.args.get("having"), query.args.get("group")
    has_sets = group is not None and group.find(exp.Cube, exp.Rollup, exp.GroupingSets) is not None
    if isinstance(query, exp.Select) and having is not None and not has_sets:
        parts = conjuncts(having.this)
        place = random.randrange(len(parts))
        parts[place : place + 1] = random.choice(([], [exp.Not(this=exp.Paren(this=parts[place].copy()))]))
        rest = conjunction(parts)
        query.set("having", None if rest is None else exp.Having(this=rest))
    return query


def more_or_fewer(query: exp.Query, random: Random) -> exp.Query:
    """Another number of first rows."""
    limit = query.args.get("limit")
    if isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal):
        number = max(1, int(limit.expression.this) + random.choice((-2, -1, 1)))
        query.set("limit", exp.Limit(expression=exp.Literal.number(number)))
    return query


def reordered(query: exp.Query, random: Random) -> exp.Query:
    """The same conditions in another order."""
    for select in _selects(query):
        where = select.args.get("where")
        if where is not None:
            select.set("where", exp.Where(this=conjunction(reversed(conjuncts(where.this)))))
    return query


def another_join(query: exp.Query, random: Random, tables: Mapping[str, Sequence[tuple[str, str]]]) -> exp.Query:
    """One more table, joined by a column that the query shows, and a column of it."""
    if isinstance(query, exp.Select) and not any(query.args.get(c) for c in ("distinct", "order", "limit", "having")):
        columns = [item.unalias() for item in query.expressions if isinstance(item.unalias(), exp.Column)]
        if columns:
            table = random.choice(sorted(tables))
            key, shown = (random.choice(tables[table])[0] for _ in range(2))
            on = exp.EQ(this=exp.column(key, "one_more"), expression=random.choice(columns).copy())
            query.join(exp.alias_(exp.to_table(table), "one_more", table=True), on=on, copy=False)
            query.select(exp.alias_(exp.column(shown, "one_more"), "of_one_more"), copy=False)
    return query


BELOW: Sequence[Edit] = (filtered_below, filtered_below, another_set_branch, joined_otherwise)
"""Edits of what is below groups."""

NAMED: Sequence[Edit] = (
    *(computed_otherwise, computed_otherwise, other_aggregates, other_aggregates, shown_otherwise),
    *(narrowed, rows_of_a_total, filtered_groups),
)
"""Edits of what the names of items stand for."""

EDITS: Sequence[Edit] = (
    *(narrowed, narrowed, widened, widened, shown_otherwise, another_branch, filtered_groups, reordered, reordered),
    *(another_aggregate, another_aggregate, other_aggregates, rows_of_a_total, other_groups, more_or_fewer),
    *(filtered_below, filtered_below, another_set_branch, joined_otherwise),
    *(computed_otherwise, computed_otherwise, written_otherwise, written_otherwise, join_removed),
)
