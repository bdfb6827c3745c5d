"""Commands on a project: making one, and taking over the queries of other tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from deferred import failpoints, terminal
from deferred.cli.common import Json, app, invocation, opened
from deferred.config import DEFAULT_FILE

IGNORED = """\
# The warehouse is data, not code: views are made again from conf/views.
/warehouse/
/catalog/
__pycache__/
"""

SAMPLE = """\
-- One file per view, named after it: copy this one to NAME.sql, then `deferred plan` and `deferred apply`.
-- The tables must be tracked: `deferred track NAME PATH`, or `deferred track --all FOLDER`.
CREATE MATERIALIZED VIEW sales_by_customer
WITH (propagate_every = '15m', refresh_every = '1h')
AS SELECT c.custId, c.name, COUNT(*) AS sales, SUM(s.quantity) AS items
FROM customer c JOIN sales s ON c.custId = s.custId
GROUP BY c.custId, c.name
"""


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder of the project.")] = Path(), as_json: Json = False
) -> None:
    """Create a project: configuration, an example view, DAG files, the warehouse folder, the metadata database."""
    from deferred import demo
    from deferred.maintenance.warehouse import Warehouse
    from deferred.metadata import Metadata

    file = invocation.config or (Path(os.environ["DEFERRED_CONFIG"]) if os.environ.get("DEFERRED_CONFIG") else None)
    if file is None:
        file = folder / DEFAULT_FILE
        failpoints.reached("configuration file")
        _write(file, (demo.examples() / "deferred.toml").read_text(encoding="utf-8"))
        _write(folder / ".gitignore", IGNORED)
        for dag in sorted(demo.dag_files().glob("*.py")):
            _write(folder / "dags" / dag.name, dag.read_text(encoding="utf-8"))
    with Warehouse.open(file) as warehouse:
        settings = warehouse.settings
    failpoints.reached("folder of views")
    _write(settings.views_folder / "example.sql.sample", SAMPLE)
    with Metadata.open(settings.metadata_url) as metadata:
        answer = {
            "config": str(file),
            "warehouse": settings.path,
            "metadata": metadata.url,
            "views": str(settings.views_folder),
        }

    def show() -> None:
        terminal.pairs("The warehouse is ready.", answer)
        terminal.say(
            "Next: `deferred track NAME PATH` for each Delta table, or `deferred track --all FOLDER`; then a view file "
            f"as in {settings.views_folder / 'example.sql.sample'}, `deferred plan` and `deferred apply`."
        )

    terminal.answer(answer, as_json, show)


def _write(file: Path, text: str) -> None:
    """Write a file, if there is none: what a user has made of it stays."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.new")  # a file that is written by half must not look like the complete one
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


@app.command("import-views")
def import_views(
    source: Annotated[
        Path, typer.Argument(help="A dbt project, its manifest.json, a .sql file, or a folder of such files.")
    ],
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="MODEL", help="Only these: a name, a pattern such as orders_*, or tag:NAME."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write a view file for each that can be a view; existing files stay.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how dbt's models, or queries in SQL files, would be maintained as views. Creates nothing."""
    from deferred.maintenance import importing

    with opened(f"Reading {source}") as warehouse:
        found = warehouse.assess_views(source, select or ())
        outcomes = importing.write(found, warehouse.settings.views_folder) if write else {}

    def show() -> None:
        terminal.table(None, ("view", "from", "outcome", "how"), [(f.view, f.source, f.outcome, f.how) for f in found])
        untracked = dict.fromkeys(name for f in found for name in f.track)
        if untracked:
            terminal.say(f"To be tracked first: {', '.join(untracked)}.")
        for view, outcome in outcomes.items():
            terminal.say(f"{view}: {outcome}")

    terminal.answer({"views": [f.to_dict() for f in found], **({"files": outcomes} if write else {})}, as_json, show)
