"""Work on many views side by side, each after those that it reads.

Operations on different views share nothing but the metadata: each has its leases, its Spark session and its tables. So
while one waits for Spark to plan, or for a job of few tasks, the others go on.
"""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from deferred.errors import DeferredError
from deferred.log.context import Context

Result = TypeVar("Result")

AT_ONCE = 4
"""The number of views that are worked on at the same time."""


def on_views(
    context: Context, views: Sequence[str], work: Callable[[str], Result]
) -> tuple[list[Result], dict[str, DeferredError]]:
    """`side_by_side` for views by name; one that is not known reads nothing, and its work says so."""
    known = {name: view for name in views if (view := context.metadata.views.find(name)) is not None}
    by_table = {view.table_id: name for name, view in known.items()}
    reads = {name: [by_table[t] for t in view.depends_on if t in by_table] for name, view in known.items()}
    return side_by_side(views, reads, work)


def side_by_side(
    views: Sequence[str], reads: Mapping[str, Sequence[str]], work: Callable[[str], Result]
) -> tuple[list[Result], dict[str, DeferredError]]:
    """The results in the order of the views, and the failures by name: the failure of one view leaves out no other.

    `reads` says for each view which of the others it reads.
    """
    ready = graphlib.TopologicalSorter({view: reads.get(view, ()) for view in views})
    ready.prepare()
    done: dict[str, Result] = {}
    failed: dict[str, DeferredError] = {}
    running: dict[Future[Result], str] = {}
    with _leaving_at_once(ThreadPoolExecutor(AT_ONCE, thread_name_prefix="view")) as pool:
        while ready.is_active():
            running |= {pool.submit(work, view): view for view in ready.get_ready()}
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                view = running.pop(ended)
                try:
                    done[view] = ended.result()
                except DeferredError as error:
                    failed[view] = error
                ready.done(view)
    return [done[view] for view in views if view in done], failed


@contextmanager
def _leaving_at_once(pool: ThreadPoolExecutor) -> Iterator[ThreadPoolExecutor]:
    """Waits for all work at the end, unless the block is left by an exception, such as Ctrl-C."""
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
