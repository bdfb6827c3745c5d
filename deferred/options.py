"""The options of a view: which there are, their defaults, and which values each may have. Everyone asks here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from deferred.config import parse_cadence, parse_duration
from deferred.errors import InvalidInputError, nearest, not_one_of

SCENARIOS = ("immediate", "base_log", "differential", "combined")


class RefreshPolicy(StrEnum):
    """Whether changes are computed incrementally, by recomputation, or whichever costs less."""

    AUTO = "auto"
    INCREMENTAL = "incremental"
    INCREMENTAL_STRICT = "incremental_strict"
    FULL = "full"


REFRESH_POLICIES = tuple(map(str, RefreshPolicy))

HISTORIES = ("rows", "changes")
"""What a history table of a view holds: its rows as of each step, or what changed in each."""

AUTO, TREE, SELF = MAINTAIN = ("auto", "tree", "self")
"""What is kept beside a view: what its operators need, also the good rows of its joins as trees, or all that makes
reading base tables unnecessary."""


@dataclass(frozen=True)
class ViewOptions:
    """How a view is maintained and how often. An object of this class is valid: every value is checked when it is made.

    scenario: which of the paper's four invariants holds between the view and its tables.
    refresh_policy: whether changes are computed incrementally, by recomputation, or whichever costs less (auto).
    propagate_every, refresh_every: a duration, five cron fields, or a name such as @daily.
    policy: what is done every refresh_every: 1 (refresh) or 2 (partial_refresh).
    target_lag: how old the rows that people read may become; the schedule follows from it.
    refresh_on_read: whether a read of rows that are older than target_lag refreshes the view first.
    maintain: what is kept beside the view: what its operators need (auto), also the good rows of a tree of joins
        (tree), or all that makes reading base tables unnecessary (self).

    >>> ViewOptions(scenario="base_log").replaced(policy=2).policy
    2
    >>> ViewOptions(scenario="eager")
    Traceback (most recent call last):
    deferred.errors.InvalidInputError: scenario must be one of immediate, base_log, differential, combined, not 'eager'.
    """

    scenario: str = "combined"
    refresh_policy: str = RefreshPolicy.AUTO.value
    propagate_every: str | None = None
    refresh_every: str | None = None
    policy: int = 1
    target_lag: str | None = None
    refresh_on_read: bool = False
    maintain: str = AUTO

    def __post_init__(self) -> None:
        for name, value in self.to_dict().items():
            check_option(name, value)
        if self.refresh_on_read and self.target_lag is None:
            raise InvalidInputError("refresh_on_read needs a target_lag: how old a view may be that is read as it is.")
        if self.is_self_maintained and self.always_recomputes:
            raise InvalidInputError(
                "maintain = 'self' reads no base table, refresh_policy = 'full' reads all of them; choose one."
            )

    @property
    def is_self_maintained(self) -> bool:
        """Whether so much is kept that no base table is read."""
        return self.maintain == SELF

    @property
    def always_recomputes(self) -> bool:
        """Whether every propagate recomputes the view, however little has changed."""
        return self.refresh_policy == RefreshPolicy.FULL

    @property
    def compares_costs(self) -> bool:
        """Whether each propagate takes the way that is expected to cost less."""
        return self.refresh_policy == RefreshPolicy.AUTO

    @property
    def refuses_recomputation(self) -> bool:
        """Whether a query is refused that could only be recomputed."""
        return self.refresh_policy == RefreshPolicy.INCREMENTAL_STRICT or self.is_self_maintained

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ViewOptions:
        """The options that a mapping names, the others by default.

        >>> ViewOptions.of({"scenari": "combined"})
        Traceback (most recent call last):
        deferred.errors.InvalidInputError: There is no option scenari; did you mean scenario?
        """
        return cls().replaced(**given)

    def replaced(self, **given: Any) -> ViewOptions:
        """The same options with some of them replaced."""
        for name in given:
            check_name(name)
        return replace(self, **given)

    def to_dict(self) -> dict[str, Any]:
        """Every option by its name, as `Warehouse.create_view` takes them."""
        return asdict(self)


OPTION_NAMES = tuple(field.name for field in fields(ViewOptions))
_DEFAULTS = {field.name: field.default for field in fields(ViewOptions)}
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "scenario": SCENARIOS,
    "refresh_policy": REFRESH_POLICIES,
    "policy": (1, 2),
    "maintain": MAINTAIN,
}
FLAGS = tuple(name for name, value in _DEFAULTS.items() if isinstance(value, bool))
"""The options that are true or false."""


def check_name(name: str) -> None:
    """Refuse an option that does not exist, with the nearest one that does."""
    if name not in OPTION_NAMES:
        raise InvalidInputError(f"There is no option {name}{nearest(name, OPTION_NAMES)}")


def check_option(name: str, value: Any) -> None:
    """Refuse a value that an option cannot have.

    >>> check_option("policy", 3)
    Traceback (most recent call last):
    deferred.errors.InvalidInputError: policy must be 1 or 2, not 3.
    """
    if name in _CHOICES:
        if value not in _CHOICES[name] or isinstance(value, bool):
            raise not_one_of(name, value, _CHOICES[name])
    elif name in FLAGS:
        if not isinstance(value, bool):
            raise not_one_of(name, value, (True, False))
    elif value is None and _DEFAULTS[name] is None:
        return
    elif not isinstance(value, str):
        raise InvalidInputError(f"{name} must be a text such as '1h', not {value!r}.")
    elif name == "target_lag":
        parse_duration(value, name)
    else:
        parse_cadence(value, name)
