"""Blocks: the projections, filters and joins at the top of a plan as one, Π[outputs](σ[conditions](E₁ × … × Eₙ)).

The inputs of a block have no column in common: a query that is used twice, which is one object with one set of
columns, is an input of its own wherever it is used again, below the projection that names its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.join import Join
from deferred.algebra.operators.outer_join import OuterJoin
from deferred.algebra.operators.project import Project
from deferred.algebra.plan import Plan
from deferred.algebra.scalar import Scalar, column, conjuncts, substitute


@dataclass(frozen=True)
class Block:
    """Π[outputs](σ[conditions](inputs₁ × … × inputsₙ)); both are written over the columns of the inputs."""

    inputs: tuple[Plan, ...]
    conditions: tuple[Scalar, ...]
    outputs: Mapping[str, Scalar]


def block_of(plan: Plan) -> Block:
    """The block at the top of a plan, which has the plan's bag of rows."""
    return _Bags().block(plan)


def distinct_block_of(plan: Plan) -> Block:
    """The block at the top of a plan below an ε, which has the plan's rows, but not each as often.

    So it looks through further ε, and E ⋉ F is E ⋈ F without the columns of F.
    """
    return _Sets().block(plan)


class _Bags:
    def block(self, plan: Plan) -> Block:
        if isinstance(plan, Project):
            below = self.block(plan.child)
            return replace(below, outputs={name: substitute(e, below.outputs) for name, e in plan.outputs})
        if isinstance(plan, Filter):
            return _joined([self.block(plan.child)], plan.condition)
        if isinstance(plan, Join):
            return self.joined(plan.inputs, plan.condition)
        return _input(plan)

    def joined(self, plans: Sequence[Plan], condition: Scalar | None) -> Block:
        """σ[condition](plans₁ × … × plansₙ); one that would repeat a column of another is an input as it is."""
        taken: set[str] = set()
        blocks = []
        for plan in plans:
            block = self.block(plan)
            names = [c for each in block.inputs for c in each.columns]
            if taken & set(names):
                block, names = _input(plan), list(plan.columns)
            taken |= set(names)
            blocks.append(block)
        return _joined(blocks, condition)


class _Sets(_Bags):
    def block(self, plan: Plan) -> Block:
        if isinstance(plan, Distinct):
            return self.block(plan.child)
        if isinstance(plan, OuterJoin) and plan.kind.selects and plan.kind.matched:
            both = self.joined(plan.children, plan.condition)
            return replace(both, outputs={c: both.outputs[c] for c in plan.columns})
        return super().block(plan)


def _input(plan: Plan) -> Block:
    return Block((plan,), (), {c: column(c) for c in plan.columns})


def _joined(blocks: Sequence[Block], condition: Scalar | None) -> Block:
    """σ of a condition over the product of blocks."""
    outputs = {name: value for block in blocks for name, value in block.outputs.items()}
    below = [part for block in blocks for part in block.conditions]
    return Block(
        inputs=tuple(plan for block in blocks for plan in block.inputs),
        conditions=(*below, *(substitute(part, outputs) for part in conjuncts(condition))),
        outputs=outputs,
    )
