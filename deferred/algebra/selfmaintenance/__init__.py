"""Views that need no base table (Quass, Gupta, Mumick, Widom 1996): what to keep of the tables instead of reading them.

`promises` are the keys and references that tables were declared with, `graph` is the join graph with Dep, Need and
Algorithm 3.1, `rewriting` puts auxiliary tables into a plan, `guards` finds in a log what breaks a promise.
"""

from deferred.algebra.selfmaintenance.promises import Promises, Reference
from deferred.algebra.selfmaintenance.rewriting import base_reads, described, narrowed, self_maintained, tables_read

__all__ = ["Promises", "Reference", "base_reads", "described", "narrowed", "self_maintained", "tables_read"]
