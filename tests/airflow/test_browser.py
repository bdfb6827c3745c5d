"""What a person does in Airflow's pages, in a real browser; DEFERRED_UPDATE_IMAGES=1 keeps the pictures in docs/img."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferred.airflow.local import USER
from tests.airflow.conftest import ROOT, Site

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
IMAGES = ROOT / "docs" / "img"
DAG = "order_details"


@pytest.fixture
def page(site: Site) -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            opened = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
            opened.set_default_timeout(60_000)
            yield opened
        finally:
            browser.close()


@pytest.fixture
def picture(tmp_path: Path) -> Any:
    """Takes a picture of the page: into docs/img when asked to, else where it is thrown away."""
    folder = IMAGES if os.environ.get("DEFERRED_UPDATE_IMAGES") else tmp_path

    def take(page: Any, name: str, height: int = 800) -> None:
        page.wait_for_timeout(1500)  # movements end
        page.screenshot(path=folder / f"{name}.png", clip={"x": 0, "y": 0, "width": 1280, "height": height})

    return take


def test_a_person_refreshes_a_view(site: Site, page: Any, picture: Any) -> None:
    site.insert((1000, "south", 1000))
    runs = {run["dag_run_id"] for run in site.all_runs(DAG)}
    log_in(site, page)
    page.goto(f"{site.airflow.url}/dags")
    page.get_by_role("link", name=DAG, exact=True).first.click()
    fill_form(page)
    picture(page, "airflow-trigger")
    page.get_by_test_id("trigger-dag-submit").click()
    run = site.until(lambda: [r["dag_run_id"] for r in site.all_runs(DAG) if r["dag_run_id"] not in runs], "a run")[0]
    assert site.wait(DAG, run) == "success", site.logs(DAG, run)
    page.goto(f"{site.airflow.url}/dags/{DAG}/runs/{run}")
    page.get_by_text("Success").first.wait_for()
    picture(page, "airflow-dag")
    done = site.xcom(DAG, run, "refresh")
    assert done["strategy"] == "full", "the switch of the form"
    assert done["requested_by"].startswith(f"{USER} ({DAG}, manual__")
    assert any(row[0] == 1000 for row in site.rows(DAG))
    page.goto(f"{site.airflow.url}/dags/{DAG}/runs/{run}/tasks/refresh/details")
    page.get_by_role("link", name="Operation").first.wait_for()


def test_a_person_sees_the_assets(site: Site, page: Any, picture: Any) -> None:
    log_in(site, page)
    page.goto(f"{site.airflow.url}/assets")
    page.get_by_role("link", name="sales_by_country").first.click()
    for name in ("order_details", "sales_by_country", "large_countries"):
        page.locator(".react-flow__node", has_text=name).first.wait_for()
    picture(page, "airflow-assets")


def test_a_person_looks_at_the_views(site: Site, page: Any, picture: Any) -> None:
    """The page is inside Airflow's own, behind its login, and its buttons lead to the DAG with the form."""
    site.insert((1001, "south", 7))
    site.warehouse.refresh(DAG)
    answer = page.goto(f"{site.airflow.url}/deferred/")
    assert answer.status == 401, "without a login"
    log_in(site, page)
    page.goto(f"{site.airflow.url}/plugin/views")
    frame = page.frame_locator("iframe")
    frame.locator("#views a", has_text=DAG).wait_for()
    picture(page, "airflow-views")
    frame.locator("#views a", has_text=DAG).click()
    section = frame.locator(f"#view-{DAG}")
    section.locator(f"svg[aria-label='Lineage of {DAG}'] a", has_text="sales_by_country").wait_for()
    picture(page, "airflow-view")
    cuts = section.locator("svg[aria-label=Cuts]")
    assert cuts.locator("circle.commit").count() >= 3
    assert "s_p shown" in (cuts.text_content() or "")
    assert section.locator("svg[aria-label='Operations by phase'] rect.phase.apply").count() > 0
    assert section.locator("svg[aria-label=Downtime] circle.commit").count() > 0
    maintained = section.locator("h3", has_text="How it is maintained")
    assert "join · linear" in (maintained.locator("~ pre").first.text_content() or "")
    assert not section.get_by_text(str(site.folder)).is_visible(), "where it is, only to those who ask"
    section.locator("a.button", has_text="Its runs").wait_for()
    section.locator("a.button").first.click()
    page.get_by_test_id("trigger-dag-button").first.wait_for()
    assert page.url.endswith(f"/dags/{DAG}")


def test_the_page_is_as_dark_as_airflow(site: Site, page: Any) -> None:
    """Airflow has a switch of its own; what the system prefers, here light, does not matter."""
    log_in(site, page)
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.goto(f"{site.airflow.url}/plugin/views")
    body = page.frame_locator("iframe").locator("body")
    body.locator("#views").wait_for()
    colour = "body => getComputedStyle(body).backgroundColor"
    assert body.evaluate(colour) == "rgb(22, 24, 29)"
    page.evaluate("document.documentElement.style.colorScheme = 'light'")
    assert body.evaluate(colour) == "rgb(255, 255, 255)"


def log_in(site: Site, page: Any) -> None:
    page.goto(site.airflow.url)
    page.locator("input[name=username]").fill(USER)
    page.locator("input[name=password]").fill(site.airflow.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Assets").first.wait_for()


def fill_form(page: Any) -> None:
    page.get_by_text("Latest Dag Version").first.wait_for()
    page.get_by_role("button", name="Trigger").first.click()
    page.get_by_test_id("trigger-dag-submit").wait_for()
    page.wait_for_timeout(1000)
    action = page.get_by_role("dialog").locator("input[aria-autocomplete=list]").first
    action.fill("refresh: bring")
    action.press("Enter")
    page.get_by_role("dialog").locator("input[name=element_full]").press("Space")
