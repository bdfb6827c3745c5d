"""The command line: the verbs of the warehouse, one module per group of commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from deferred import terminal
from deferred.cli.common import app
from deferred.errors import DeferredError

# isort: off
# Each of these adds its commands, and --help lists them in this order.
from deferred.cli import project, tables, views, maintain, transactions, show, services  # noqa: F401
# isort: on


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 when it succeeded, 1 when it failed, 2 when it was not understood."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if {"-q", "--quiet"} & set(given):  # it may stand anywhere
        given = ["--quiet", *(word for word in given if word not in ("-q", "--quiet"))]
    try:
        app(args=given, prog_name="deferred")
    except DeferredError as error:
        terminal.fail(error, "--json" in given)
    sys.exit(0)
