"""Notices: structured logs, OpenLineage's events and webhooks, sent to a real server on this machine."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake
from openlineage.client import serde
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import error_message_run, output_statistics_output_dataset

from deferred import DeferredError, Warehouse
from deferred.errors import ConfigurationError, LogLostError, PromiseBrokenError
from deferred.log import tracking
from deferred.maintenance import notices
from deferred.maintenance.notices import Event
from deferred.maintenance.operation import Work, announce_broken, announced, recorded
from tests.seeing.shop import BIG_SALES, SALES, Shop


class Receiver:
    """A server that keeps what is posted to it; `status` is what it answers."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(json.loads(body))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()


def opened(shop: Shop, *lines: str, **given: Any) -> Warehouse:
    file = shop.folder / "conf" / "deferred.toml"
    file.write_text("\n".join(['[warehouse]\npath = "warehouse"\n[notices]', *lines]), encoding="utf-8")
    return Warehouse.open(file, **given)


def lose_the_log(shop: Shop, table: str) -> None:
    path = Path(shop.metadata.tables.get(table).location)
    shutil.rmtree(path)
    write_deltalake(path, SALES)


def test_a_webhook_when_a_view_breaks_and_when_it_works_again(shop: Shop, receiver: Receiver) -> None:
    with opened(shop, f'webhook = "{receiver.url}"') as warehouse:
        warehouse.partial_refresh("largest")
        assert receiver.received == [], "nothing to tell"
        lose_the_log(shop, "sales")
        with pytest.raises(LogLostError):
            warehouse.propagate("big_sales")
        (told,) = receiver.received
        assert (told["event"], told["view"], told["code"], told["level"]) == ("broken", "big_sales", "D501", "error")
        assert "dropped and recreated" in told["message"]
        assert next(v for v in warehouse.status() if v["name"] == "big_sales")["health"] == "broken"
        warehouse.partial_refresh("big_sales")
        assert [document["event"] for document in receiver.received] == ["broken", "recovered"]


def test_a_view_whose_tables_break_their_promise_is_broken(shop: Shop, receiver: Receiver) -> None:
    """Also one that was failing before: it now waits for a rebuild."""
    with opened(shop, f'webhook = "{receiver.url}"') as warehouse:
        view = shop.metadata.views.get("big_sales")
        shop.operation(view, "propagate", {}, state="failed", error="Spark is away.")
        with pytest.raises(PromiseBrokenError), recorded(warehouse._context, "verify", view):
            raise PromiseBrokenError("Two rows of customer have the key 1.")
    assert [(told["event"], told["code"]) for told in receiver.received] == [("broken", "D505")]


def test_a_view_that_the_rebuild_of_another_finds_broken(shop: Shop, receiver: Receiver) -> None:
    """A rebuild takes a table as it is now; the other views that read it know another one."""
    shop.view("other", BIG_SALES, ["sales"])
    with opened(shop, f'webhook = "{receiver.url}"', 'log = "events.jsonl"') as warehouse:
        lose_the_log(shop, "sales")
        work = Work()
        sales = shop.metadata.tables.get("sales")
        announce_broken(warehouse._context, work, tracking.trusted_again(warehouse._context, sales))
        assert tracking.trusted_again(warehouse._context, shop.metadata.tables.get("sales")) == []
    told = {document["view"]: document for document in receiver.received}
    assert told.keys() == {"big_sales", "other"}, "high_sales was broken before"
    assert {document["event"] for document in told.values()} == {"broken"}
    assert "sales was dropped and recreated" in told["other"]["message"]
    lines = [json.loads(line) for line in (shop.folder / "events.jsonl").read_text().splitlines()]
    assert {(line["event"], line["level"], line["code"]) for line in lines} == {("broken", "error", "D501")}


def test_a_server_that_hangs_costs_little(shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """It takes what is posted and never answers. It is waited for once, and not again for a while."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(notices, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = f"http://127.0.0.1:{hanging.getsockname()[1]}/"
        with opened(shop, f'openlineage = "{address}"') as warehouse:
            begun = time.monotonic()
            for _ in range(3):
                warehouse.partial_refresh("largest")
            taken = time.monotonic() - begun
    assert taken < notices.TIMEOUT / 2
    assert caplog.text.count("has not answered within") == 1
    assert caplog.text.count("is left alone") == 5


def test_a_receiver_that_fails_changes_nothing(shop: Shop, receiver: Receiver, caplog: Any) -> None:
    receiver.status = 500
    missing = f'openlineage = "http://127.0.0.1:1/"\nlog = "{shop.folder}/nowhere/log"\nwebhook = "{receiver.url}"'
    with opened(shop, missing) as warehouse:
        assert warehouse.partial_refresh("largest").state == "nothing"
    assert "A notice about largest could not be given" in caplog.text


def test_structured_logs(shop: Shop) -> None:
    with opened(shop, 'log = "events.jsonl"') as warehouse:
        warehouse.propagate("largest")
    lines = [json.loads(line) for line in (shop.folder / "events.jsonl").read_text().splitlines()]
    assert [(line["event"], line["phase"]) for line in lines] == [
        ("start", None),
        ("phase", "sync"),
        ("complete", None),
    ]
    assert {(line["view"], line["kind"], line["level"]) for line in lines} == {("largest", "propagate", "info")}
    assert len({line["operation"] for line in lines}) == 1


def as_the_client_sends_it(event: dict[str, Any]) -> dict[str, Any]:
    """An event made anew by the classes of OpenLineage's own client, which are generated from the published schemas."""
    (output,) = event["outputs"]
    statistics = {
        name: output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=facet["rowCount"], producer=event["producer"]
        )
        for name, facet in output.get("outputFacets", {}).items()
    }
    failures = {
        name: error_message_run.ErrorMessageRunFacet(
            facet["message"], facet["programmingLanguage"], producer=event["producer"]
        )
        for name, facet in event["run"]["facets"].items()
    }
    job = event["job"]
    made = RunEvent(
        eventType=RunState[event["eventType"]],
        eventTime=event["eventTime"],
        run=Run(event["run"]["runId"], failures),  # type: ignore[arg-type]
        job=Job(job["namespace"], job["name"], {}),
        inputs=[InputDataset(i["namespace"], i["name"], facets={}, inputFacets=None) for i in event["inputs"]],
        outputs=[OutputDataset(output["namespace"], output["name"], facets={}, outputFacets=statistics or None)],  # type: ignore[arg-type]
        producer=event["producer"],
    )
    return json.loads(serde.Serde.to_json(made))  # type: ignore[no-any-return]


def test_openlineage_events_are_what_its_own_client_would_send(shop: Shop, receiver: Receiver) -> None:
    with opened(shop, f'openlineage = "{receiver.url}"', 'namespace = "shop"') as warehouse:
        warehouse.partial_refresh("largest")
        lose_the_log(shop, "sales")
        with pytest.raises(DeferredError):
            warehouse.propagate("big_sales")
    assert [event["eventType"] for event in receiver.received] == ["START", "COMPLETE", "START", "FAIL"]
    for event in receiver.received:
        assert event == as_the_client_sends_it(event)
    complete, failed = receiver.received[1], receiver.received[3]
    assert complete["job"] == {"namespace": "shop", "name": "largest.partial_refresh", "facets": {}}
    assert complete["inputs"][0]["name"] == shop.metadata.tables.get("big_sales").location
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 0
    assert "dropped and recreated" in failed["run"]["facets"]["errorMessage"]["message"]


def test_openlineage_to_a_file(shop: Shop) -> None:
    with opened(shop, 'openlineage = "lineage.jsonl"') as warehouse:
        warehouse.partial_refresh("largest")
    events = [json.loads(line) for line in (shop.folder / "lineage.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]


def test_only_operations_are_told_to_others(shop: Shop, receiver: Receiver) -> None:
    """Making a view and reading one are nobody's business but of whoever waits for it."""
    heard: list[Event] = []
    told = f'webhook = "{receiver.url}"\nopenlineage = "{receiver.url}"\nlog = "events.jsonl"'
    with opened(shop, told, listeners=[heard.append]) as warehouse:
        context = warehouse._context
        with pytest.raises(ZeroDivisionError), announced(context, "create", "v", "/v") as work, work.phase("compute"):
            work.rows_read = 1 // 0
    assert [(event.moment, event.phase) for event in heard] == [
        ("START", None),
        ("PHASE", "compute"),
        ("FAIL", "compute"),
    ]
    assert receiver.received == []
    assert not (shop.folder / "events.jsonl").exists()


def test_a_listener_of_ones_own(shop: Shop) -> None:
    heard: list[Event] = []
    with opened(shop, listeners=[heard.append]) as warehouse:
        warehouse.partial_refresh("largest")
    assert [event.moment for event in heard] == ["START", "COMPLETE"]


def test_what_cannot_be_told(shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="http or https"):
        opened(shop, 'webhook = "ftp://example"')
    with pytest.raises(ConfigurationError, match="did you mean webhook"):
        opened(shop, 'webhok = "x"')
