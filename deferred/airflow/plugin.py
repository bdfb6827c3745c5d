"""The Airflow plugin: a page about all views, and that of an operation, behind Airflow's own login."""

from __future__ import annotations

import functools
import html
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import conf

if TYPE_CHECKING:
    from deferred.maintenance.warehouse import Warehouse

BASE = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
"""The path under which Airflow's pages are."""

FRAMED = """<script>
if (window.parent !== window) {
  const around = window.parent.document;
  const follow = () => {
    document.documentElement.style.colorScheme = around.documentElement.style.colorScheme;
  };
  follow();
  new MutationObserver(follow).observe(around.documentElement, {attributeFilter: ["style"]});
  document.addEventListener("click", event => {
    const link = event.target.closest("a[target=_top]");
    if (!link) return;
    event.preventDefault();
    const outside = around.createElement("a");
    outside.href = link.href;
    around.body.append(outside);
    outside.click();
    outside.remove();
  });
}
</script>"""
"""Airflow shows the page in a frame: it is as light or dark as Airflow, whatever the system prefers, and its buttons
are pressed in the page around it, since the frame may not leave itself."""


@functools.cache
def pages() -> Any:
    """Returns the pages under /deferred of Airflow's API server."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import HTMLResponse

    from deferred.airflow.opening import opened
    from deferred.errors import DeferredError, UnknownObjectError
    from deferred.report.facts import gather
    from deferred.report.page import page

    app = FastAPI(title="deferred", docs_url=None, redoc_url=None, openapi_url=None)

    @contextmanager
    def warehouse() -> Iterator[Warehouse]:
        try:
            with opened(None) as found:
                yield found
        except UnknownObjectError as error:
            raise HTTPException(404, str(error)) from None
        except DeferredError as error:
            raise HTTPException(503, f"[{error.code}] {error}") from None

    @app.get("/", response_class=HTMLResponse, dependencies=[Depends(get_user)])
    def views() -> str:
        with warehouse() as found:
            with_dag = dags()
            return page(gather(found), lambda view: actions(view) if view in with_dag else {}, FRAMED)

    @app.get("/operations/{operation_id}", response_class=HTMLResponse, dependencies=[Depends(get_user)])
    def operation(operation_id: str) -> str:
        with warehouse() as found:
            return operation_page(found.operation(operation_id).to_dict())

    return app


def dags() -> set[str]:
    """Returns the names of the DAGs that Airflow has: a view may be maintained by no DAG, or not by one of its own."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        return {name for (name,) in session.query(DagModel.dag_id).filter(DagModel.is_stale.is_(False))}


def actions(view: str) -> Mapping[str, str]:
    """Returns the buttons of a view: they lead to its DAG, whose Trigger button opens the form with all actions."""
    return {
        "Refresh, rebuild or verify it": f"{BASE}/dags/{quote(view, safe='')}",
        "Its runs": f"{BASE}/dags/{quote(view, safe='')}/runs",
    }


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Creates the pages at the first request: plugins are loaded by every process of Airflow."""
    await pages()(scope, receive, send)


def operation_page(operation: dict[str, Any]) -> str:
    """Returns the page of an operation: its cuts, rows and seconds."""
    from deferred.report.page import document

    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{_shown(value)}</td></tr>" for name, value in operation.items()
    )
    title = f"{operation['kind']} of {operation['view']}"
    back = f'<p><a href="{BASE}/deferred/#view-{html.escape(str(operation["view"]))}">All views</a></p>'
    return document(title, f"{back}<h1>{html.escape(title)}</h1><table>{rows}</table>")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "<br>".join(f"{html.escape(str(k))}: {_shown(v)}" for k, v in value.items())
    return html.escape("" if value is None else str(value))


class DeferredPlugin(AirflowPlugin):
    """Found by Airflow through the package's entry point."""

    name = "deferred"
    fastapi_apps = [{"app": serve, "url_prefix": "/deferred", "name": "deferred"}]
    external_views = [
        {"name": "Views", "href": f"{BASE}/deferred/", "destination": "nav", "url_route": "views", "category": "browse"}
    ]
