"""The first task of the DAG for several views: checks the form and lets the picked views through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deferred.airflow.form import Request
from deferred.airflow.opening import asker
from deferred.airflow.operators import Context, Deciding, log
from deferred.errors import UnknownObjectError

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse


class Choose(Deciding):
    """Refuses what does not go together and views that are not there; skips the views that were not picked."""

    def __init__(self, *, views: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.views = list(views)

    def work(self, warehouse: Warehouse, context: Context) -> list[str]:
        request = Request.read(context["params"])
        picked = [name for name in self.views if name in context["params"]["views"]]
        existing = {view.name.casefold() for view in warehouse.views()}
        missing = [name for name in picked if name.casefold() not in existing]
        if missing:
            raise UnknownObjectError(f"These views are not created yet: {', '.join(missing)}. Trigger their own DAGs "
                                     f"first, or run `deferred apply`.")
        log.info("%s asks for %s of %s.", asker(context), request.action, ", ".join(picked))
        self.skip_others(context, picked)
        return picked
