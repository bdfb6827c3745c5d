"""Column pruning: the same bag, and no column that nothing reads."""

from __future__ import annotations

from hypothesis import given

from deferred.algebra.delta import differentiate
from deferred.algebra.operators import Project, Scan
from deferred.algebra.paper.evaluate import evaluate, run_program
from deferred.algebra.prune import prune
from deferred.algebra.scalar import column

from . import strategies as s


@given(s.sql_queries(), s.logged_states())
def test_a_pruned_query_has_the_same_value_and_the_same_change(query, state):
    pruned = prune(query)
    assert pruned.columns == query.columns
    assert evaluate(pruned, state) == evaluate(query, state)
    difference = s.signed(evaluate(query, state), evaluate(query, s.past_state(state)))
    assert run_program(differentiate(pruned, s.SCHEMA), state, s.net_changes(state, s.SCHEMA)) == difference


def test_a_scan_reads_only_what_is_asked():
    (scan,) = prune(Project(Scan("R", ("a", "b"), ("c1", "c2")), (("c3", column("c2")),))).children
    assert scan.columns == ("c2",)
