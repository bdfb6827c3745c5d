"""The first task of the DAG for several views: checks the form and lets the picked views through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deferred.airflow.form import Request
from deferred.airflow.opening import requester
from deferred.airflow.operators import Context, Deciding, log
from deferred.errors import UnknownObjectError

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse


class Choose(Deciding):
    """Refuses contradictory requests and views that do not exist; skips the views that were not picked."""

    def __init__(self, *, views: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.views = list(views)

    def work(self, warehouse: Warehouse, context: Context) -> list[str]:
        request = Request.read(context["params"])
        picked = [name for name in self.views if name in context["params"]["views"]]
        existing = {view.name.casefold() for view in warehouse.views()}
        missing = [name for name in picked if name.casefold() not in existing]
        if missing:
            raise UnknownObjectError(
                f"These views do not exist yet: {', '.join(missing)}. Trigger their own DAGs first, or run "
                f"`deferred apply`."
            )
        log.info("%s requested %s of %s.", requester(context), request.action, ", ".join(picked))
        self.skip_others(context, picked)
        return picked
