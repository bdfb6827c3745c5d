"""Figure 2, Definition 1 and Lemmas 1 and 3 against their own definitions, on random queries and states."""

from __future__ import annotations

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from deferred.algebra.equations.figure2 import (
    Pair,
    Substitution,
    applied,
    bag_algebra,
    differential,
    log,
    minimum,
    monus,
    table,
)
from deferred.algebra.equations.simplify import simplify
from deferred.algebra.operators import Distinct, Filter, Join, Project, Scan, SetOperation, UnionAll, Values
from deferred.algebra.paper.evaluate import Table, evaluate
from deferred.algebra.paper.lemmas import (
    cancelled,
    composed,
    future,
    future_additions,
    future_deletions,
    maximum,
    past,
    past_additions,
    past_deletions,
    strongly_minimal,
    transaction,
    weakly_minimal,
)
from tests.algebra import strategies as s

L, T = log(s.SCHEMA), transaction(s.SCHEMA)


@given(s.paper_queries(), s.logged_states())
def test_theorem_2_for_logs(query, state):
    """(a) η(Q) ≡ (Q ∸ DEL(η, Q)) ⊎ ADD(η, Q) and (b) DEL(η, Q) ⊆ Q for η = ℒ̂; then Equation (2) by duality."""
    change = differential(L, query)
    assert evaluate(applied(query, change), state) == evaluate(query, s.past_state(state))
    assert evaluate(change.deletions, state) <= evaluate(query, state)


@given(s.paper_queries(), s.transaction_states())
def test_theorem_2_for_transactions(query, state):
    change = differential(T, query)
    assert evaluate(applied(query, change), state) == evaluate(query, s.future_state(state))
    assert evaluate(change.deletions, state) <= evaluate(query, state)


@given(s.sql_queries(), s.logged_states())
def test_theorem_2_for_operators_defined_by_the_nine_forms_and_for_aggregates(query, state):
    change = differential(L, query)
    assert evaluate(applied(query, change), state) == evaluate(query, s.past_state(state))
    assert evaluate(change.deletions, state) <= evaluate(query, state)


@given(s.paper_queries(), s.table_states(), s.conditions(s.SCHEMA["R"]))
def test_theorem_2_for_substitutions_that_are_queries(query, state, condition):
    """η(R) = (R ∸ σ(R)) ⊎ S and η(S) = (S ∸ ε(S)) ⊎ φ: the D and A of a factored substitution are any queries."""
    r, t = table("R", s.SCHEMA["R"]), table("S", s.SCHEMA["S"])
    of_s = Scan("S", ("b", "c"), s.SCHEMA["R"])
    eta = Substitution({"R": Pair(Filter(r, condition), of_s), "S": Pair(Distinct(t), Values(s.SCHEMA["S"], ()))})
    after = state | {
        "R": Table(s.SCHEMA["R"], state["R"].rows - evaluate(Filter(r, condition), state) + state["S"].rows),
        "S": Table(s.SCHEMA["S"], state["S"].rows - Counter(set(state["S"].rows))),
    }
    change = differential(eta, query)
    assert evaluate(eta.apply(query), state) == evaluate(query, after)
    assert evaluate(applied(query, change), state) == evaluate(query, after)
    assert evaluate(change.deletions, state) <= evaluate(query, state)


@given(s.paper_queries(), s.logged_states())
def test_past_queries_and_equation_2(query, state):
    """PAST(ℒ, Q)(s_c) = Q(s_p), and Q ≡ (PAST(ℒ, Q) ∸ ▼(ℒ, Q)) ⊎ ▲(ℒ, Q)."""
    old = evaluate(past(L, query), state)
    assert old == evaluate(query, s.past_state(state))
    deletions, additions = evaluate(past_deletions(L, query), state), evaluate(past_additions(L, query), state)
    assert old - deletions + additions == evaluate(query, state)


@given(s.paper_queries(), s.transaction_states())
def test_future_queries_and_equation_1(query, state):
    """FUTURE(𝒯, Q)(s) = Q(𝒯(s)) ≡ (Q ∸ ∇(𝒯, Q)) ⊎ Δ(𝒯, Q)."""
    new = evaluate(future(T, query), state)
    assert new == evaluate(query, s.future_state(state))
    deletions, additions = evaluate(future_deletions(T, query), state), evaluate(future_additions(T, query), state)
    assert evaluate(query, state) - deletions + additions == new


@given(s.select_project_join_queries(), s.table_states(), st.data())
def test_remark_1_one_changed_table_without_self_joins_hides_the_state_bug(query, state, data):
    scans = Counter(node.table for node in query.walk() if isinstance(node, Scan))
    once = sorted(name for name in scans if scans[name] == 1)
    assume(once)
    before = data.draw(s.with_changes(state, "∇", "Δ", [data.draw(st.sampled_from(once))]))
    after = {**before, **s.future_state(before)}
    for white, black in (("∇", "▼"), ("Δ", "▲")):
        after |= {black + name: before[white + name] for name in s.SCHEMA}
    wrong, right = differential(T, query), differential(L, query)
    assert s.signed(evaluate(wrong.additions, after), evaluate(wrong.deletions, after)) == s.signed(
        evaluate(right.deletions, after), evaluate(right.additions, after)
    )


# Lemmas about bags: the queries O, D, I are tables with any contents

WORDS = ("x", "y")
OLD, D1, I1, D2, I2 = (table(name, WORDS) for name in ("OLD", "D1", "I1", "D2", "I2"))


def contents(**bags):
    return {name: Table(WORDS, bag) for name, bag in bags.items()}


@given(s.bags(2), s.bags(2), s.bags(2))
def test_lemma_1_cancellation(old, deleted, inserted):
    """If N ≡ (O ∸ D) ⊎ I then O ≡ (N ∸ I) ⊎ (O min D), for any D."""
    state = contents(OLD=old, D1=deleted, I1=inserted)
    change = Pair(D1, I1)
    assert evaluate(applied(applied(OLD, change), cancelled(OLD, change)), state) == old


@given(s.bags(2), st.data())
def test_lemma_3_weakly_minimal_composition(old, data):
    """For D₁ ⊆ O and D₂ ⊆ (O ∸ D₁) ⊎ I₁: both changes one after the other are the composed one, and D₃ ⊆ O."""
    d1 = data.draw(s.subbags(old))
    i1, i2 = data.draw(s.bags(2)), data.draw(s.bags(2))
    d2 = data.draw(s.subbags(old - d1 + i1))
    state = contents(OLD=old, D1=d1, I1=i1, D2=d2, I2=i2)
    both = composed(Pair(D1, I1), Pair(D2, I2))
    assert evaluate(applied(OLD, both), state) == old - d1 + i1 - d2 + i2
    assert evaluate(both.deletions, state) <= old


@given(s.bags(2), s.bags(2), s.bags(2))
def test_minimality_transformations(old, deleted, inserted):
    """Any change has an equivalent weakly minimal one (D ⊆ Q), and a strongly minimal one (also D min A ≡ φ)."""
    state = contents(OLD=old, D1=deleted, I1=inserted)
    for minimal in (weakly_minimal(OLD, Pair(D1, I1)), strongly_minimal(OLD, Pair(D1, I1))):
        assert evaluate(applied(OLD, minimal), state) == old - deleted + inserted
        assert evaluate(minimal.deletions, state) <= old
    assert not evaluate(minimal.deletions, state) & evaluate(minimal.additions, state)


@given(s.bags(2), s.bags(2))
def test_min_and_max_have_the_definitions_of_section_2(left, right):
    state = contents(OLD=left, D1=right)
    assert evaluate(minimum(OLD, D1), state) == evaluate(monus(OLD, monus(OLD, D1)), state) == left & right
    assert evaluate(maximum(OLD, D1), state) == left | right


@given(s.sql_queries(), s.table_states())
def test_queries_keep_their_value_in_the_bag_algebra_and_in_simplification(query, state):
    defined = bag_algebra(query)
    assert evaluate(defined, state) == evaluate(query, state)
    assert evaluate(simplify(query), state) == evaluate(query, state)
    assert simplify(query).columns == query.columns
    for node in defined.walk():
        if isinstance(node, Join):
            assert len(node.inputs) == 2
            assert node.condition is None
        if isinstance(node, SetOperation):
            assert (node.kind, node.every) == ("EXCEPT", True)


@given(s.sql_queries(), s.logged_states())
def test_simplified_changes_have_the_same_value(query, state):
    quiet = {name for name in s.SCHEMA if not state[f"▲{name}"].rows and not state[f"▼{name}"].rows}
    change = differential(log({name: columns for name, columns in s.SCHEMA.items() if name not in quiet}), query)
    everything = differential(L, query)
    for some, every in ((change.deletions, everything.deletions), (change.additions, everything.additions)):
        simple = simplify(some)
        assert evaluate(simple, state) == evaluate(every, state)
        assert not {f"{sign}{name}" for name in quiet for sign in "▼▲"} & {
            node.table for node in simple.walk() if isinstance(node, Scan)
        }


def test_unchanged_tables_leave_no_trace():
    scans = Scan("R", ("a",), ("x",)), Scan("S", ("b",), ("y",))
    change = differential(log({"R": ("a", "b")}), Distinct(Join(scans)))
    untouched = differential(log({"T": ("c", "a")}), Distinct(UnionAll(scans, ("z",))))
    assert {n.table for n in simplify(change.additions).walk() if isinstance(n, Scan)} == {"R", "S", "▼R", "▲R"}
    assert isinstance(simplify(untouched.deletions), Values)
    assert not isinstance(simplify(change.deletions), (Values, Project))
