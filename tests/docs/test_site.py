"""The documentation as a site: whole, strict, for everybody, and made at the first visit of a checkout."""

import importlib.util
import re
import threading
from contextlib import closing
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.core.management import call_command
from django.test import Client

from taskstore_project.commands import CannotRun
from taskstore_project.documentation import building, views
from taskstore_project.documentation.site import CannotShow, Site
from taskstore_project.documentation.sources import INDEX, LOOKS, kinds_in
from taskstore_project.testing import PROJECT

from ..security.test_headers import BROWSER, assert_nothing_inline, assert_strict

pytestmark = [pytest.mark.once, pytest.mark.django_db]

KINDS = ["First hour", "How-tos", "Reference", "Explanation"]
WIDTHS = [1440, 360]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The site. Links and anchors that lead nowhere, and pages that the index leaves out, are errors."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    building.build(PROJECT, folder, strict=True)
    return folder


@pytest.fixture
def site(folder, monkeypatch):
    monkeypatch.setattr(views, "SITE", Site(included=folder))
    return folder


def wait_for(site: Site) -> None:
    assert site._making
    site._making.join()


def pages(folder: Path) -> list[str]:
    return sorted(page.name for page in folder.glob("*.html"))


def test_every_page_is_there_and_in_the_contents(folder):
    kinds = kinds_in((PROJECT / INDEX).read_text())
    assert [kind.title for kind in kinds] == KINDS
    written = {page.stem for page in (PROJECT / "docs").glob("*.md")} - {"README"}
    assert {f"{name}.html" for name in written} | {"index.html", "search.html", "readme.html"} <= set(pages(folder))
    first = (folder / "index.html").read_text()
    for name in written:
        assert f'<a href="{name}.html"' in first


def test_each_page_is_strict_and_for_everybody(client, site):
    for page in pages(site):
        answer = client.get(f"/docs/{page}", headers=BROWSER)
        assert answer.status_code == 200
        assert_strict(answer)
        page = b"".join(answer.streaming_content).decode()
        assert not re.search(r"<style| style=|<script>| on\w+=", page)
        answer.close()


def test_the_address_without_a_slash_leads_there(client, site):
    assert client.get("/docs")["Location"] == "/docs/"
    with closing(client.get("/docs/")) as answer:
        assert answer.status_code == 200


@pytest.mark.parametrize("path", ["nothing.html", "_static", "%2e%2e/conf.py", "../manage.py", "/etc/passwd", "a%00b"])
def test_there_is_nothing_else(client, site, path):
    answer = client.get(f"/docs/{path}", headers=BROWSER)
    assert answer.status_code in (400, 404)
    assert_strict(answer)
    assert_nothing_inline(answer)


def test_nobody_can_write_there(client, site):
    assert client.post("/docs/index.html").status_code == 405


def test_what_a_browser_has_is_not_sent_again(client, site):
    with closing(client.get("/docs/index.html")) as first:
        assert first["Cache-Control"] == "no-cache"
    assert client.get("/docs/index.html", headers={"if-modified-since": first["Last-Modified"]}).status_code == 304


@pytest.fixture
def made(monkeypatch, settings, tmp_path):
    """A checkout whose site is made when the test says so."""
    settings.TASKSTORE_DATA = tmp_path
    begin, builds = threading.Event(), []

    def build(project, target):
        builds.append(target)
        assert begin.wait(60)
        target.mkdir(parents=True)
        (target / "index.html").write_text("made")

    monkeypatch.setattr("taskstore_project.documentation.site.build", build)
    site = Site(included=tmp_path / "nothing")
    monkeypatch.setattr(views, "SITE", site)
    yield begin, builds, site
    begin.set()
    wait_for(site)


def test_the_first_visit_of_a_checkout_makes_it_once(client, made, tmp_path):
    begin, builds, site = made
    (tmp_path / "docs" / "former").mkdir(parents=True)
    for _ in range(3):
        waiting = client.get("/docs/", headers=BROWSER)
        assert (waiting.status_code, waiting["Retry-After"], waiting["Refresh"]) == (503, "2", "2")
        assert "is being made" in waiting.content.decode()
    begin.set()
    wait_for(site)
    with closing(client.get("/docs/")) as answer:
        assert b"".join(answer.streaming_content) == b"made"
    assert len(builds) == 1
    assert [each.name for each in (tmp_path / "docs").iterdir()] == [builds[0].name]


def test_a_site_that_can_not_be_made_is_told_and_not_tried_again(monkeypatch, settings, tmp_path, caplog):
    settings.TASKSTORE_DATA = tmp_path
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    site = Site(included=tmp_path / "nothing")
    with pytest.raises(CannotShow, match=r"being made|could not be made"):
        site.folder()
    wait_for(site)
    for _ in range(2):
        with pytest.raises(CannotShow, match="could not be made"):
            site.folder()
    assert caplog.text.count("Sphinx and myst-parser are not installed") == 1


def test_a_link_that_leads_nowhere_is_told(tmp_path):
    (tmp_path / "docs").mkdir()
    for look in LOOKS:
        (tmp_path / "static" / look).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "static" / look).symlink_to(PROJECT / "static" / look)
    (tmp_path / "docs" / "README.md").write_text("# Index\n\n## How-tos\n\n* [A page](page.md)\n")
    (tmp_path / "docs" / "page.md").write_text("# A page\n\n[There](nothing.md), [there](#nothing)\n")
    with pytest.raises(building.CannotBuild) as told:
        building.build(tmp_path, tmp_path / "site", strict=True)
    assert "nothing.md" in str(told.value)
    assert "'nothing'" in str(told.value)
    assert not (tmp_path / "site").exists()


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_it_at_any_width(chromium, live_server, site, width):
    chromium.set_viewport_size({"width": width, "height": 800})
    for page in ("index.html", "settings.html", "console.html"):
        chromium.goto(f"{live_server.url}/docs/{page}")
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width
        assert Axe().run(chromium).response["violations"] == []


@pytest.mark.browser
def test_the_search_finds_a_page(chromium, live_server, site):
    chromium.goto(f"{live_server.url}/docs/")
    chromium.fill("#find", "TASKSTORE_RETENTION")
    chromium.press("#find", "Enter")
    chromium.click("#search-results a[href^='settings.html']")
    assert chromium.title() == "Settings · Task Store"


@pytest.mark.browser
def test_the_theme_is_that_of_the_console(chromium, live_server, site):
    chromium.goto(f"{live_server.url}/docs/")
    chromium.click("[name=theme][value=dark]")
    chromium.reload()
    assert chromium.locator("html").get_attribute("data-theme") == "dark"
    assert chromium.locator("[name=theme][value=dark]").get_attribute("aria-pressed") == "true"


def test_the_description_of_the_api_leads_there(client: Client):
    assert client.get("/schema").json()["externalDocs"]["url"] == "/docs/"


def test_the_command_writes_to_a_new_folder_only(tmp_path):
    with pytest.raises(CannotRun, match="is there already: name a new folder"):
        call_command("docs", "build", str(tmp_path), traceback=True)
