"""Updates that do not matter (Blakeley 1987, chapter 3): which rows of a base table can never change a view.

`conditions` walks the plan: what must hold of a row, and of rows that it meets, for it to reach the view. `logic`
states that in three-valued logic for the solver z3. `condition` derives from it a condition on the row alone, as SQL,
and decides whether a set of rows of which only ranges are known can matter.
"""

from deferred.algebra.relevance.condition import Relevance, relevance_of
from deferred.algebra.relevance.logic import Dialect, Known

__all__ = ["Dialect", "Known", "Relevance", "relevance_of"]
