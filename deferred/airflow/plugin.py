"""The Airflow plugin: the page of an operation, to which tasks link, behind Airflow's own login."""

from __future__ import annotations

import functools
import html
from typing import Any

from airflow.plugins_manager import AirflowPlugin


@functools.cache
def pages() -> Any:
    """Returns the pages under /deferred of Airflow's API server."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import HTMLResponse

    from deferred.airflow.opening import opened
    from deferred.errors import DeferredError, UnknownObjectError

    app = FastAPI(title="deferred", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/operations/{operation_id}", response_class=HTMLResponse, dependencies=[Depends(get_user)])
    def operation(operation_id: str) -> str:
        try:
            with opened(None) as warehouse:
                return operation_page(warehouse.operation(operation_id).to_dict())
        except UnknownObjectError as error:
            raise HTTPException(404, str(error)) from None
        except DeferredError as error:
            raise HTTPException(503, str(error)) from None

    return app


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Creates the pages at the first request: plugins are loaded by every process of Airflow."""
    await pages()(scope, receive, send)


def operation_page(operation: dict[str, Any]) -> str:
    """Returns the page of an operation: its cuts, rows and seconds."""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{_shown(value)}</td></tr>" for name, value in operation.items()
    )
    title = html.escape(f"{operation['kind']} of {operation['view']}")
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>body{{font:15px system-ui;margin:2em}}"
        f"th{{text-align:left;padding-right:1.5em;vertical-align:top;font-weight:600}}td,th{{padding-block:.25em}}"
        f"</style><h1>{title}</h1><table>{rows}</table>"
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "<br>".join(f"{html.escape(str(k))}: {_shown(v)}" for k, v in value.items())
    return html.escape("" if value is None else str(value))


class DeferredPlugin(AirflowPlugin):
    """Found by Airflow through the package's entry point."""

    name = "deferred"
    fastapi_apps = [{"app": serve, "url_prefix": "/deferred", "name": "deferred"}]
