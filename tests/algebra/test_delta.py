"""The signed-count rules that Spark runs, against two evaluations and against Figure 2, on random queries."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.delta import differentiate
from deferred.algebra.equations.figure2 import differential, log
from deferred.algebra.operators import Change, Join, Net, Restrict, Scan, UnionAll
from deferred.algebra.operators.scan import tables_of
from deferred.algebra.paper.evaluate import Table, evaluate, outcome, run_program
from deferred.algebra.plan import Keys
from deferred.algebra.scalar import column, conjunction
from tests.fuzz.on_evaluator import kept_at

from . import strategies as s

L = log(s.SCHEMA)


def changed(state):
    return {name for name in s.SCHEMA if state[f"▲{name}"].rows or state[f"▼{name}"].rows}


def expected(query, state):
    """Q(s_c) − Q(s_p)."""
    return s.signed(evaluate(query, state), evaluate(query, s.past_state(state)))


def computed(query, state, tables):
    return run_program(differentiate(query, tables), state, s.net_changes(state, tables))


def plans(program):
    return [step.plan for step in program.steps] + ([] if program.result is None else [program.result])


@given(s.sql_queries(), s.logged_states())
def test_signed_change_is_the_difference_of_two_evaluations(query, state):
    difference = expected(query, state)
    event("changes" if difference else "no change")
    assert computed(query, state, changed(state)) == difference


@given(s.keeping_queries(), s.logged_states())
def test_support_tables_follow_and_give_the_same_change(query, state):
    """What is kept at s_i and moved to s_c is what would be kept at s_c; the change read from it is the change."""
    tables = changed(state)
    kept = kept_at(query, s.past_state(state))
    found = outcome(differentiate(query, tables), state, s.net_changes(state, tables), kept)
    assert found.change == expected(query, state)
    assert found.supports == kept_at(query, state)


@given(s.paper_queries(), s.logged_states())
def test_signed_change_is_additions_less_deletions_of_figure_2(query, state):
    """Δ(Q) = ▲(ℒ, Q) − ▼(ℒ, Q)."""
    dual = differential(L, query)
    assert computed(query, state, changed(state)) == s.signed(
        evaluate(dual.deletions, state), evaluate(dual.additions, state)
    )


@given(s.sql_queries(), s.logged_states())
def test_operators_beyond_the_paper_agree_with_figure_2_as_well(query, state):
    dual = differential(L, query)
    assert computed(query, state, changed(state)) == s.signed(
        evaluate(dual.deletions, state), evaluate(dual.additions, state)
    )


@given(s.sql_queries(), s.logged_states())
def test_tables_declared_changed_may_have_no_change(query, state):
    assert computed(query, state, set(s.SCHEMA)) == expected(query, state)


@given(s.sql_queries(), s.logged_states())
def test_result_is_netted(query, state):
    tables = changed(state)
    program = differentiate(query, tables)
    changes = s.net_changes(state, tables)
    temporaries = {}
    for step in program.steps:
        temporaries[step.name] = evaluate(step.plan, state, changes, temporaries)
    if program.result is None:
        assert not expected(query, state)
        return
    assert isinstance(program.result, Net)
    assert program.result.columns == (*query.columns, COUNT)
    rows = evaluate(program.result, state, changes, temporaries)
    assert all(n == 1 and row[-1] for row, n in rows.items())
    assert len({row[:-1] for row in rows}) == len(rows)


@given(s.sql_queries(), s.changed_tables())
def test_unchanged_tables_contribute_no_term(query, tables):
    program = differentiate(query, tables)
    assert (program.result is None) == (not tables_of(query) & tables)
    for plan in plans(program):
        assert {node.table for node in plan.walk() if isinstance(node, Change)} <= tables
    if program.result is None:
        assert not program.steps


@given(s.sql_queries(), s.table_states(), st.data())
def test_pushed_down_keys_restrict_exactly(query, state, data):
    """E.restricted(K) ≡ E ⋉ K: pushing keys to the scans loses no row and lets none through."""
    columns = st.sampled_from(query.columns).map(column)
    values = columns | st.builds(lambda a, b: exp.Add(this=a, expression=b), columns, columns)
    mine = data.draw(st.lists(values, min_size=1, max_size=3))
    names = tuple(f"k{i}" for i in range(len(mine)))
    rows = data.draw(s.bags(len(mine)))
    keys = Keys(Scan("K", names, names), tuple(zip(mine, map(column, names), strict=True)))
    state = {**state, "K": Table(names, rows)}
    assert evaluate(query.restricted(keys), state) == evaluate(Restrict(query, keys), state)


@st.composite
def scan_joins(draw):
    """E₁ ⋈ … ⋈ Eₙ of single tables, up to five of them, with tables repeated."""
    names = draw(st.lists(st.sampled_from(sorted(s.SCHEMA)), min_size=2, max_size=5))
    scans = tuple(Scan(name, s.SCHEMA[name], (f"x{i}", f"y{i}")) for i, name in enumerate(names))
    return Join(scans, draw(s.join_conditions(scans)))


@given(scan_joins(), s.table_states(), st.data())
def test_keys_spread_over_several_inputs_of_a_join_restrict_exactly(join, state, data):
    """K's pairs lie on two inputs; each alone would let combinations through that K does not hold."""
    left, right = data.draw(st.sampled_from(join.inputs[0].columns)), data.draw(st.sampled_from(join.inputs[1].columns))
    keys = Keys.of(Scan("K", ("k", "l"), ("k", "l")), [(left, "k"), (right, "l")])
    state = {**state, "K": Table(("k", "l"), data.draw(s.bags(2, least=2)))}
    assert evaluate(join.restricted(keys), state) == evaluate(Restrict(join, keys), state)


@given(scan_joins(), s.changed_tables())
def test_a_join_has_one_term_for_each_changed_input(join, tables):
    program = differentiate(join, tables)
    count = sum(scan.table in tables for scan in join.inputs)
    if count == 0:
        assert program.result is None
        return
    total = program.result.child
    terms = total.inputs if isinstance(total, UnionAll) else (total,)
    assert len(terms) == count
    for term in terms:
        assert any(isinstance(node, Change) for node in term.walk())


@given(scan_joins(), s.logged_states())
def test_joins_of_many_inputs_telescope(join, state):
    assert computed(join, state, changed(state)) == expected(join, state)


@pytest.mark.parametrize("count", range(1, 7))
def test_terms_grow_with_the_changed_inputs_not_with_their_subsets(count):
    scans = tuple(Scan(f"T{i}", ("k",), (f"c{i}",)) for i in range(6))
    chain = conjunction(exp.EQ(this=column(f"c{i}"), expression=column(f"c{i + 1}")) for i in range(5))
    total = differentiate(Join(scans, chain), {f"T{i}" for i in range(count)}).result.child
    assert len(total.inputs if isinstance(total, UnionAll) else (total,)) == count
