"""Commands on transactions that have not ended: which there are, and the ways to bring one to its end."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from deferred import terminal
from deferred.cli.common import Json, app, opened

group = typer.Typer(no_args_is_help=True, help="Transactions that were interrupted or could not be undone.")
app.add_typer(group, name="transaction")

Id = Annotated[str, typer.Argument(metavar="ID", help="Of a transaction, see list.", show_default=False)]


@group.command("list")
def list_(as_json: Json = False) -> None:
    """Show the transactions that have not ended. Starts no Spark."""
    with opened() as warehouse:
        found: list[dict[str, Any]] = [
            {
                "id": record.id,
                "state": record.state,
                "tables": list(dict.fromkeys(statement["table"] for statement in record.statements)),
                "begun": record.created_at.isoformat(),
                "error": record.error,
            }
            for record in warehouse.transactions()
        ]
    terminal.answer(
        {"transactions": found},
        as_json,
        lambda: terminal.table(
            None,
            ("transaction", "state", "tables", "begun (UTC)", "error"),
            [(t["id"], t["state"], ", ".join(t["tables"]), terminal.moment(t["begun"]), t["error"]) for t in found],
        ),
    )


@group.command()
def retry(transaction: Id, as_json: Json = False) -> None:
    """Undo a transaction, all of it or nothing."""
    _resolve(transaction, "retry", as_json)


@group.command()
def undo(transaction: Id, as_json: Json = False) -> None:
    """Undo what can be undone, and show the rows that others have changed since: those stay."""
    _resolve(transaction, "undo", as_json)


@group.command()
def keep(transaction: Id, as_json: Json = False) -> None:
    """Leave the tables as they are: what the transaction did so far stays."""
    _resolve(transaction, "keep", as_json)


def _resolve(transaction: str, how: str, as_json: bool) -> None:
    with opened(f"Resolving transaction {transaction}") as warehouse:
        resolution = warehouse.resolve_transaction(transaction, how)

    def show() -> None:
        rows = [(t.table, t.rows_deleted, t.rows_inserted, len(t.missing), t.problem or "") for t in resolution.tables]
        terminal.table(None, ("table", "rows deleted", "rows inserted", "rows that are no longer there", ""), rows)
        for table in resolution.tables:
            for row in table.missing:
                terminal.say(f"{table.table}: {row}")

    terminal.answer(resolution.to_dict(), as_json, show)
