"""report: one file with everything, read by an HTML parser and shown by a real browser.

DEFERRED_UPDATE_IMAGES=1 keeps the picture in docs/img.
"""

from __future__ import annotations

import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from deferred import Warehouse
from deferred.report.facts import gather
from tests.seeing.shop import Shop
from tests.test_cli import Project

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
IMAGES = Path(__file__).parents[2] / "docs" / "img"
VOID = {"meta", "th", "td", "tr", "li", "br", "p"}
"""Tags that need no end."""


class Balanced(HTMLParser):
    """Checks that what is opened is closed, and keeps ids and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.ids.add(given.get("id") or "")
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_file_has_everything_and_needs_nothing(project: Project, shop: Shop) -> None:
    code, out, _ = project.run("report")
    assert code == 0
    assert "deferred-report.html: 3 views" in out
    text = (shop.folder / "deferred-report.html").read_text(encoding="utf-8")
    parsed = Balanced()
    parsed.feed(text)
    assert parsed.open == []
    assert all(link.startswith("#") and link[1:] in parsed.ids for link in parsed.links)
    assert not re.search(r"https?://|<script|<link|@import|url\(|src=", text), "nothing is loaded"
    assert "<details><summary>Where it is</summary>" in text
    for part in ("Lineage of big_sales", "s_p shown", "Operations by phase", "Downtime", "How it is maintained"):
        assert part in text
    assert "The log of sales from version 1 to 2 is lost." in text


def test_only_some_views_in_detail(project: Project, shop: Shop) -> None:
    assert project.json("report", "LARGEST", "-o", "one.html")["views"] == ["largest"]
    text = (shop.folder / "one.html").read_text(encoding="utf-8")
    assert text.count("<section") == 1
    assert "high_sales" in text, "the list has all views"
    assert "did you mean largest" in project.fails("report", "larges")


def test_what_users_write_is_shown_as_text(project: Project, shop: Shop) -> None:
    view = shop.metadata.views.get("high_sales")
    shop.metadata.views.update(view.id, problem="<script>alert(1)</script>", sql="SELECT '<b>' AS x FROM sales")
    project.run("report")
    text = (shop.folder / "deferred-report.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_looking_writes_nothing_and_asks_once_for_all_views(shop: Shop) -> None:
    """Commits that nobody has synced are shown; the ledger stays as it was, and no query is made for each operation."""
    asked: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement != "BEGIN":
            asked.append(statement)

    before = shop.metadata.ledger.times(10)
    event.listen(Engine, "before_cursor_execute", note)
    try:
        with Warehouse.open(shop.folder / "conf" / "deferred.toml") as warehouse:
            asked.clear()
            facts = gather(warehouse)
            gathered = list(asked)
            asked.clear()
            assert len(warehouse.history(limit=40)) == 11
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len(asked) == 2, "the operations, and the names of tables"
    assert not [statement for statement in gathered if not statement.startswith(("SELECT", "WITH", "PRAGMA"))]
    assert len([statement for statement in gathered if "FROM ledger" in statement]) == 1
    assert shop.metadata.ledger.times(10) == before
    assert len(facts.details["big_sales"].commits["sales"]) == 2
    assert [op.kind for op in facts.details["big_sales"].operations[:2]] == ["partial_refresh", "propagate"]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_shows_it(project: Project, shop: Shop, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    project.run("report")
    asked: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_page(viewport={"width": 1100, "height": 1000}, color_scheme="light")
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda message: asked.append(message.text))
            page.goto(f"file://{shop.folder}/deferred-report.html")
            assert page.locator("#views tr").count() == 4
            page.locator("#views a", has_text="big_sales").click()
            section = page.locator("#view-big_sales")
            assert section.locator("svg").count() == 4
            assert section.locator("rect.phase").count() == 25
            assert section.locator("rect.key + text").all_text_contents() == ["log", "compute", "write", "net", "apply"]
            assert section.locator("circle.commit").first.bounding_box()["width"] > 0
            folder = IMAGES if os.environ.get("DEFERRED_UPDATE_IMAGES") else tmp_path
            page.evaluate("window.scrollTo(0, 0)")
            page.screenshot(path=folder / "report.png")
        finally:
            browser.close()
    assert asked == [f"file://{shop.folder}/deferred-report.html"], "no network, no errors"
