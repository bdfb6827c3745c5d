"""Figures 1 and 3: Lemma 4 and Theorem 5, each against its own definition, and histories of many operations.

Every test starts from an arbitrary state in which the invariant holds; that is what a Hoare triple quantifies over.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferred.algebra.paper import figure3 as f3
from deferred.algebra.paper.evaluate import Table, evaluate, execute
from tests.algebra import strategies as s


def holds(invariant, state):
    return evaluate(invariant.left, state) == evaluate(invariant.right, state)


def minimal(state, view_tables=True):
    """▲R ⊆ R for every table, and ∇MV ⊆ MV."""
    logs = all(state[f"▲{name}"].rows <= state[name].rows for name in s.SCHEMA)
    return logs and (not view_tables or state["∇MV"].rows <= state["MV"].rows)


def value_after(query, state):
    """Q(𝒯(s)), by counting."""
    return evaluate(query, s.future_state(state))


@st.composite
def views(draw, states, queries):
    return f3.View(draw(queries), s.SCHEMA), draw(states)


@st.composite
def im_states(draw):
    """INV_IM holds: MV = Q."""
    view, state = draw(views(s.transaction_states(), s.paper_queries()))
    mv = Table(view.query.columns, evaluate(view.query, state))
    return view, {**state, "MV": mv}


@st.composite
def bl_states(draw):
    """INV_BL holds: MV = Q(s_p), with any weakly minimal log from s_p."""
    view, state = draw(views(s.logged_transaction_states(), s.paper_queries()))
    mv = Table(view.query.columns, evaluate(view.query, s.past_state(state)))
    return view, {**state, "MV": mv}


@st.composite
def dt_states(draw):
    """INV_DT holds, with any ∇MV ⊆ MV and any ΔMV."""
    view, state = draw(views(s.transaction_states(), s.paper_queries()))
    return view, draw(s.with_view(state, view.query.columns, evaluate(view.query, state)))


@st.composite
def c_states(draw):
    """INV_C holds, with any weakly minimal log, any ∇MV ⊆ MV and any ΔMV."""
    view, state = draw(views(s.logged_transaction_states(), s.paper_queries()))
    return view, draw(s.with_view(state, view.query.columns, evaluate(view.query, s.past_state(state))))


@given(im_states())
def test_immediate(given_state):
    """{INV_IM} makesafe_IM[𝒯] {INV_IM}, and MV is Q(𝒯(s))."""
    view, state = given_state
    after = execute(f3.makesafe_im(view), state)
    assert holds(f3.invariant_im(view), after)
    assert after["MV"].rows == value_after(view.query, state)
    assert execute(f3.refresh_im(view), after) == after


@given(bl_states())
def test_base_log(given_state):
    """{INV_BL} makesafe_BL[𝒯] {INV_BL}, {INV_BL} refresh_BL {Q ≡ MV}."""
    view, state = given_state
    assert holds(f3.invariant_bl(view), state)
    after = execute(f3.makesafe_bl(view), state)
    assert holds(f3.invariant_bl(view), after)
    assert {name: after[name] for name in s.SCHEMA} == s.future_state(state)
    for start in (state, after):
        refreshed = execute(f3.refresh_bl(view), start)
        assert refreshed["MV"].rows == evaluate(view.query, start)
        assert holds(f3.invariant_bl(view), refreshed)
        assert not any(refreshed[f"{sign}{name}"].rows for sign in "▼▲" for name in s.SCHEMA)


@given(dt_states())
def test_differential_tables(given_state):
    """{INV_DT} makesafe_DT[𝒯] {INV_DT}, {INV_DT} refresh_DT {Q ≡ MV}."""
    view, state = given_state
    assert holds(f3.invariant_dt(view), state)
    after = execute(f3.makesafe_dt(view), state)
    assert holds(f3.invariant_dt(view), after)
    assert {name: after[name] for name in s.SCHEMA} == s.future_state(state)
    for start in (state, after):
        refreshed = execute(f3.refresh_dt(view), start)
        assert refreshed["MV"].rows == evaluate(view.query, start)
        assert not refreshed["∇MV"].rows
        assert not refreshed["ΔMV"].rows


@given(c_states())
def test_combined(given_state):
    """All triples of the combined scenario, refresh_C in both of its orders."""
    view, state = given_state
    assert holds(f3.invariant_c(view), state)
    after = execute(f3.makesafe_c(view), state)
    assert holds(f3.invariant_c(view), after)
    for start in (state, after):
        now = evaluate(view.query, start)
        propagated = execute(f3.propagate_c(view), start)
        assert holds(f3.invariant_dt(view), propagated)
        assert holds(f3.invariant_c(view), propagated)
        partly = execute(f3.partial_refresh_c(view), start)
        assert holds(f3.invariant_bl(view), partly)
        assert partly["MV"].rows == evaluate(view.query, s.past_state(start))
        for procedure in (f3.refresh_c(view), f3.refresh_c_partial_first(view)):
            refreshed = start
            for step in procedure:
                refreshed = execute(step, refreshed)
            assert refreshed["MV"].rows == now
            assert holds(f3.invariant_c(view), refreshed)


@given(s.logged_transaction_states())
def test_lemma_4_the_log_is_extended_correctly(state):
    """s_p →ℒ (makesafe_BL[𝒯])(s_c), and ▲R ⊆ R stays true."""
    view = f3.View(f3.table("R", s.SCHEMA["R"]), s.SCHEMA)
    after = execute(f3.makesafe_bl(view), state)
    assert s.past_state(after) == s.past_state(state)
    assert minimal(after, view_tables=False)


@given(dt_states(), c_states())
def test_lemma_4_differential_tables_stay_minimal(differential, combined):
    """makesafe_DT[𝒯] and propagate_C are safe for ∇MV ⊆ MV."""
    view, state = differential
    after = execute(f3.makesafe_dt(view), state)
    assert after["∇MV"].rows <= after["MV"].rows
    view, state = combined
    after = execute(f3.propagate_c(view), state)
    assert minimal(after)


OPERATIONS = {
    "transaction": lambda view: (f3.makesafe_c(view),),
    "propagate": lambda view: (f3.propagate_c(view),),
    "partial_refresh": lambda view: (f3.partial_refresh_c(view),),
    "refresh": f3.refresh_c,
    "refresh, partial first": f3.refresh_c_partial_first,
}


@given(c_states(), st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=2, max_size=6), st.data())
def test_histories_keep_the_combined_invariant(start, operations, data):
    view, state = start
    for operation in operations:
        state = data.draw(s.with_transaction(state))
        for step in OPERATIONS[operation](view):
            state = execute(step, state)
        assert holds(f3.invariant_c(view), state)
        assert minimal(state)
        if operation.startswith("refresh"):
            assert state["MV"].rows == evaluate(view.query, state)


@pytest.mark.parametrize("procedure", [f3.makesafe_bl, f3.makesafe_dt, f3.makesafe_im, f3.refresh_bl, f3.propagate_c])
def test_procedures_assign_every_table_with_its_own_columns(procedure):
    view = f3.View(f3.table("S", s.SCHEMA["S"]), s.SCHEMA)
    for name, plan in procedure(view).items():
        assert plan.columns == (view.query.columns if name.endswith("MV") else s.SCHEMA[name.strip("▼▲∇Δ")])
