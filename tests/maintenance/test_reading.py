"""Reads that refresh first: what they refresh, and in which order; and that they never wait for long. No Spark."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from deferred.errors import StaleReadWarning
from deferred.log.context import Context
from deferred.maintenance import reading
from deferred.maintenance.working import refreshing
from deferred.spark.engine import Engine
from tests.seeing.shop import BIG_SALES, LARGEST, SALES, Shop, empty_shop

HOUR = 3600.0


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with empty_shop(tmp_path / "shop") as made:
        made.table("sales", SALES)
        yield made


def context(shop: Shop, patience: float = 0.1) -> Context:
    return Context(shop.metadata, Engine(), str(shop.folder / "warehouse"), patience=patience)


def test_what_a_view_is_made_of_is_refreshed_before_it(shop: Shop) -> None:
    """A view that was refreshed a minute ago is as old as the view that it reads."""
    shop.view("big_sales", BIG_SALES, ["sales"], ago=3 * HOUR)
    shop.view("young", BIG_SALES, ["sales"], ago=60)
    shop.view("top", LARGEST, ["big_sales", "young"], ago=60, target_lag="1h", refresh_on_read=True)
    shop.view("plain", LARGEST, ["big_sales"], ago=3 * HOUR, target_lag="1h")
    assert reading.due(context(shop), "top") == ["big_sales", "top"]
    assert reading.due(context(shop), "plain") == []
    shop.metadata.views.update(shop.metadata.views.get("big_sales").id, shown=shop.cut("sales"))
    assert reading.due(context(shop), "top") == []


def test_a_read_does_not_wait_for_another_process(shop: Shop) -> None:
    view = shop.view("v", BIG_SALES, ["sales"], ago=2 * HOUR, target_lag="1h", refresh_on_read=True)
    with refreshing(context(shop), view):
        begun = time.monotonic()
        with pytest.warns(StaleReadWarning, match="View v is shown in its state of .* held by another process"):
            reading._refresh_if_due(context(shop), "v")
    assert time.monotonic() - begun < reading.READ_PATIENCE + 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reading._refresh_if_due(context(shop), "v")


def test_a_broken_view_is_read_as_it_is(shop: Shop) -> None:
    view = shop.view("v", BIG_SALES, ["sales"], ago=2 * HOUR, target_lag="1h", refresh_on_read=True)
    shop.metadata.views.update(view.id, state="broken", problem="The log of sales is lost.")
    with pytest.warns(StaleReadWarning, match="The log of sales is lost"):
        reading._refresh_if_due(context(shop, patience=120.0), "v")
