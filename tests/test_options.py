"""The options of a view: every way in refuses the same values with the same words."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from deferred.cli.views import create
from deferred.errors import ConfigurationError, InvalidInputError
from deferred.maintenance.otherwise import DIFFERS
from deferred.maintenance.warehouse import Warehouse
from deferred.options import MAINTAIN, OPTION_NAMES, ViewOptions
from deferred.sql.viewfile import parse_view


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scenario", "eager", "scenario must be one of immediate, base_log, differential, combined, not 'eager'."),
        ("refresh_policy", "x", "refresh_policy must be one of auto, incremental, incremental_strict, full, not 'x'."),
        ("policy", 3, "policy must be 1 or 2, not 3."),
        ("refresh_every", 5, "refresh_every must be a text such as '1h', not 5."),
        ("propagate_every", "often", "propagate_every cannot be read: 'often'."),
        ("target_lag", "0s", "target_lag must be greater than zero, not '0s'."),
        ("target_lag", "@daily", "target_lag cannot be read: '@daily'."),
        ("refresh_on_read", "yes", "refresh_on_read must be True or False, not 'yes'."),
        ("maintain", "bush", "maintain must be one of auto, tree, self, not 'bush'."),
        ("polic", 1, "There is no option polic; did you mean policy"),
    ],
)
def test_python_and_view_files_refuse_with_the_same_words(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        ViewOptions.of({name: value})
    assert str(refused.value).startswith(message)
    with pytest.raises(ConfigurationError) as refused_file:
        parse_view(f"CREATE MATERIALIZED VIEW v\nWITH ({name} = {value!r}) AS SELECT 1 AS a")
    assert str(refused_file.value) == f"Line 2: {refused.value}"


@pytest.mark.parametrize("value", [True, "1", None, 1.5])
def test_a_policy_is_a_number(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="policy must be 1 or 2"):
        ViewOptions(policy=value)


def test_a_refresh_on_read_needs_to_know_when() -> None:
    with pytest.raises(InvalidInputError, match="needs a target_lag"):
        ViewOptions(refresh_on_read=True)
    view = parse_view("CREATE MATERIALIZED VIEW v WITH (refresh_on_read = TRUE, target_lag = '1h') AS SELECT 1 AS a")
    assert view.options == ViewOptions(target_lag="1h", refresh_on_read=True)


def test_the_warehouse_has_the_same_options_and_defaults() -> None:
    parameters = list(inspect.signature(Warehouse.create_view).parameters.values())[3:]
    assert {parameter.name: parameter.default for parameter in parameters} == ViewOptions().to_dict()


def test_the_command_line_has_the_same_options() -> None:
    parameters = list(inspect.signature(create).parameters)
    assert [name for name in parameters if name in OPTION_NAMES] == list(OPTION_NAMES)


def test_replacing_keeps_the_others() -> None:
    options = ViewOptions(scenario="base_log", refresh_every="@daily").replaced(policy=2)
    assert options == ViewOptions(scenario="base_log", refresh_every="@daily", policy=2)
    assert ViewOptions(**options.to_dict()) == options
    with pytest.raises(InvalidInputError, match="did you mean scenario"):
        options.replaced(scenari="combined")


def test_a_view_file_remembers_what_it_states() -> None:
    view = parse_view("CREATE MATERIALIZED VIEW v WITH (scenario = 'combined') AS SELECT 1 AS a")
    assert (view.options, view.stated) == (ViewOptions(), {"scenario"})
    changed = view.stating({"policy": 2})
    assert (changed.options, changed.stated) == (ViewOptions(policy=2), {"scenario", "policy"})


def test_explain_compares_every_value_of_maintain() -> None:
    assert DIFFERS.keys() == set(MAINTAIN)
