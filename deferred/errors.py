"""Every error that a user can cause. Each message says what happened, to which object, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DeferredError(Exception):
    """The root of all errors that a user can cause or mend."""


class ConfigurationError(DeferredError):
    """A setting, a configuration file or a command-line value is not usable."""


class MetadataError(DeferredError):
    """The metadata database is unreachable, has no schema, or a schema of another version."""


class UnknownObjectError(DeferredError):
    """A table, view, column or operation of that name does not exist."""


class NameTakenError(DeferredError):
    """Something of that name exists already."""


class InvalidNameError(DeferredError):
    """A name that cannot be the name of a table or view."""


class InvalidSQLError(DeferredError):
    """SQL text that does not parse, does not resolve, or that Spark refuses."""


class UnsupportedSQLError(DeferredError):
    """SQL that is well-formed and that a view may not contain; the construct is named."""


class NondeterministicSQLError(UnsupportedSQLError):
    """SQL whose result is not decided by the base tables alone, so that no way of maintaining it could be right."""


class InvalidInputError(DeferredError):
    """Rows, timestamps or parameters that do not fit what they are for."""


class LogLostError(DeferredError):
    """The base log that a view needs is gone or cannot be trusted; `rebuild` is the remedy."""


class LeaseHeldError(DeferredError):
    """Another process is at work on the same view."""


class InvariantError(DeferredError):
    """`verify` found a state in which the scenario's invariant does not hold."""


class TransactionError(DeferredError):
    """A transaction could not be completed; what it had done was undone."""


class SparkFailure(DeferredError):
    """Spark or Delta refused or failed a statement."""


def nearest(name: str, names: Iterable[str]) -> str:
    """A trailing hint with the names closest to a mistyped one.

    >>> nearest("custmer", ["customer", "sales"])
    '; did you mean customer?'
    >>> nearest("x", [])
    ''
    """
    known = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0.5)
    if close:
        return "; did you mean " + " or ".join(known[c] for c in close) + "?"
    listed = sorted(known.values())
    if listed:
        return "; there are: " + ", ".join(listed[:8]) + (", …" if len(listed) > 8 else "")
    return ""
