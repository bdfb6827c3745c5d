"""The operators, one file each: everything about an operator is in its file.

The names here only shorten imports. Nothing looks an operator up in this list; a new one is imported from its file.
"""

from deferred.algebra.operators.aggregate import Aggregate
from deferred.algebra.operators.counted import Counted, GroupPart
from deferred.algebra.operators.distinct import Distinct
from deferred.algebra.operators.filter import Filter
from deferred.algebra.operators.generate import Generate
from deferred.algebra.operators.join import Join
from deferred.algebra.operators.kept import Kept, KeptValues
from deferred.algebra.operators.limit import KeptRows, Limit
from deferred.algebra.operators.outer_join import ANTI, FULL, LEFT, SEMI, OuterJoin
from deferred.algebra.operators.project import Project
from deferred.algebra.operators.recursion import Recursion, Reference
from deferred.algebra.operators.restrict import Restrict
from deferred.algebra.operators.scan import Change, Scan
from deferred.algebra.operators.set_operation import EXCEPT, INTERSECT, SetOperation
from deferred.algebra.operators.signed import Net, Repeat
from deferred.algebra.operators.temporary import Stored, Temporary
from deferred.algebra.operators.union_all import UnionAll
from deferred.algebra.operators.values import Values
from deferred.algebra.operators.window import Window

__all__ = [
    "ANTI",
    "EXCEPT",
    "FULL",
    "INTERSECT",
    "LEFT",
    "SEMI",
    "Aggregate",
    "Change",
    "Counted",
    "Distinct",
    "Filter",
    "Generate",
    "GroupPart",
    "Join",
    "Kept",
    "KeptRows",
    "KeptValues",
    "Limit",
    "Net",
    "OuterJoin",
    "Project",
    "Recursion",
    "Reference",
    "Repeat",
    "Restrict",
    "Scan",
    "SetOperation",
    "Stored",
    "Temporary",
    "UnionAll",
    "Values",
    "Window",
]
