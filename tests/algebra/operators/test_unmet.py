"""References that were not found: what is remembered of them, and until when."""

from __future__ import annotations

from collections import Counter

from deferred.algebra.delta import differentiate
from deferred.algebra.equations.of_view import equations
from deferred.algebra.notation import Labels
from deferred.algebra.operators.unmet import Unmet, Watched
from deferred.algebra.outline import outline
from deferred.algebra.program import LATE
from deferred.algebra.strategy import kept_nodes
from deferred.sql.render import ReadableLeaves, Renderer
from tests.algebra.operators.promised import SCHEMAS, follows, maintained, node_of
from tests.fuzz.duck import Database

VIEW = "SELECT line.id, line.price FROM line JOIN sale ON line.sale = sale.id WHERE sale.day = 5"


def _remembered(db: Database, unmet: Unmet) -> set[int]:
    return {row[0] for row in db.connection.execute(f'SELECT * FROM "{unmet.kept.support}"').fetchall()}


def test_it_follows_changes_without_base_tables() -> None:
    follows("SELECT line.id, sale.day FROM line JOIN sale ON line.sale = sale.id WHERE sale.id < 5", Watched)


def test_only_parts_of_tables_are_watched() -> None:
    """Of a table that is kept as a whole the guards know at once what is missing."""
    with maintained("SELECT line.id, sale.day FROM line JOIN sale ON line.sale = sale.id") as (_, bound):
        assert not any(isinstance(node, Watched) for node in bound.plan.walk())


def test_a_key_is_remembered_until_a_log_shows_that_it_was_there() -> None:
    with maintained(VIEW) as (db, bound):
        unmet = node_of(bound.plan, Unmet)
        assert isinstance(unmet, Unmet)
        db.keep(bound)
        assert _remembered(db, unmet) == set()
        lines = {(6, 3, 1): 1, (7, 1, 1): 1, (8, 9, 1): 1, (9, None, 1): 1}
        for log, left, kinds in (
            ({"line": lines}, {3, 9}, []),
            ({"line": {(10, 8, 1): 1}, "sale": {(8, 1, 6): 1}}, {3, 9}, []),
            ({"sale": {(3, 3, 6): -1, (3, 3, 7): 1}}, {9}, []),
            ({"sale": {(7, 1, 5): 1}}, {9}, []),
            ({"sale": {(9, 1, 5): 1}}, {9}, [(LATE, "line", ("sale",), Counter({(9,): 1}), "sale")]),
        ):
            db.show(bound)
            for name in SCHEMAS:
                db.log(name, log.get(name, {}))
            with db.out_of_reach():
                db.preview(bound, SCHEMAS)
                found = [(g.kind, g.table, g.names, rows, g.other) for g, rows in db.guarded(bound, SCHEMAS)]
                if not found:
                    db.move(bound, SCHEMAS)
            assert (found, _remembered(db, unmet)) == (kinds, left)
            for name in SCHEMAS:
                new = Counter(db.state[name])
                new.update(log.get(name, {}))
                db.replace(name, +new)


def test_how_it_is_shown() -> None:
    with maintained(VIEW) as (_, bound):
        unmet, labels = node_of(bound.plan, Unmet), Labels(bound.plan)
        ((name, (node, strategy)),) = ((n, k) for n, k in kept_nodes(bound.plan).items() if k[0] is unmet)
        assert (strategy.support, strategy.name, strategy.is_exact) == (name, "references not found", False)
        assert "a row with such a key would come too late" in node.reads(labels)
        watched = node_of(bound.plan, Watched)
        assert watched.notation(labels) == labels.text(watched.children[0])


def test_equations_and_sql_can_be_shown() -> None:
    """Of the view alone: what is remembered of its references is in no equation, and in a line of the outline."""
    with maintained(VIEW) as (_, bound):
        assert "Δ" in " ".join(equations(bound.plan)) or "▲" in " ".join(equations(bound.plan))
        assert any("a row with such a key would come too late" in line for line in outline(bound.plan))
        program = differentiate(bound.plan, bound.tables, bound.types)
        assert "support1" in (Renderer(ReadableLeaves()).statement(program) or "")
