"""Every error that a user can cause. Each message says what happened, to which object, and what to do next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_SECRETS = (
    (re.compile(r"(://[^:/@\s]*:)[^@\s]+@"), r"\1***@"),
    (re.compile(r"((?:token|password|passwd|passfile|secret|access.?key)[\w.]*=)[^;&\s'\"]+", re.IGNORECASE), r"\1***"),
)


def redacted(text: str) -> str:
    """A text without passwords and tokens: messages are shown on pages, kept in the history and sent to logs.

    >>> redacted("no answer from postgresql://me:p:w@host/db?sslpassword=x and sc://host:1/;token=abc;user_id=me")
    'no answer from postgresql://me:***@host/db?sslpassword=*** and sc://host:1/;token=***;user_id=me'
    """
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class DeferredError(Exception):
    """The base of all errors that a user can cause or fix. No message contains a secret, whoever has written it."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(redacted(part) if isinstance(part, str) else part for part in arguments))


class ConfigurationError(DeferredError):
    """A setting, a configuration file or a command-line value is not usable."""


class MetadataError(DeferredError):
    """The metadata database is unreachable, has no schema, or a schema of another version."""


class UnknownObjectError(DeferredError):
    """A table, view, column or operation with that name does not exist."""


class NameTakenError(DeferredError):
    """Something with that name exists already."""


class InvalidNameError(DeferredError):
    """A name that cannot be the name of a table or view."""


class InvalidSQLError(DeferredError):
    """SQL text that does not parse, does not resolve, or that Spark refuses."""


class UnsupportedSQLError(DeferredError):
    """SQL that is well-formed and that a view may not contain; the construct is named."""


class NondeterministicSQLError(UnsupportedSQLError):
    """SQL whose result is not decided by the base tables alone, so no way of maintaining it could be correct."""


class UnsafeSQLError(UnsupportedSQLError):
    """SQL that would run code, or read anything but tracked tables."""


class EndlessRecursionError(DeferredError):
    """A recursion that still finds new rows after as many rounds as it may take."""


class InvalidInputError(DeferredError):
    """Rows, timestamps or parameters that do not fit what they are for."""


class LogLostError(DeferredError):
    """The base log that a view needs is gone or cannot be trusted; `rebuild` fixes the view."""


class LeaseHeldError(DeferredError):
    """Another process is working on the same view."""


class LeaseLostError(DeferredError):
    """Another process has taken over the work: this one was away for too long, and may no longer write."""


class StorageError(DeferredError):
    """Files cannot be read at present. Nothing is known to be lost, and nothing was changed: it may be tried again."""


class InvariantError(DeferredError):
    """`verify` found a state in which the scenario's invariant does not hold."""


class TransactionError(DeferredError):
    """A transaction could not be completed; its changes were undone."""


class SparkFailure(DeferredError):
    """Spark or Delta refused or failed a statement."""


class PromiseBrokenError(DeferredError):
    """A base table does not keep the key or the references that it was tracked with, and a view relies on them."""


def not_one_of(name: str, value: object, choices: Sequence[object]) -> InvalidInputError:
    """The error that a parameter has a value that it cannot have.

    >>> print(not_one_of("order", "x", ["first", "last"]))
    order must be first or last, not 'x'.
    >>> print(not_one_of("scenario", None, ["a", "b", "c"]))
    scenario must be one of a, b, c, not None.
    """
    listed = " or ".join(map(str, choices)) if len(choices) == 2 else "one of " + ", ".join(map(str, choices))
    return InvalidInputError(f"{name} must be {listed}, not {value!r}.")


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that says that a name does not exist: the names that come closest to it.

    >>> "There is no table custmer" + nearest("custmer", ["customer", "sales"])
    'There is no table custmer; did you mean customer?'
    >>> "There is no table x" + nearest("x", ["customer", "sales"])
    'There is no table x; there are customer, sales.'
    >>> "There is no table x" + nearest("x", [])
    'There is no table x.'
    """
    known = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0.5)
    if close:
        return "; did you mean " + " or ".join(known[c] for c in close) + "?"
    listed = sorted(known.values())
    if listed:
        return "; there are " + ", ".join(listed[:8]) + (", …" if len(listed) > 8 else ".")
    return "."
