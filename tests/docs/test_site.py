"""The documentation under /docs/: whole, strict, for everybody, with a search."""

import re
from contextlib import closing
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from django.test import Client

from lab.testing import PROJECT
from taskstore_project.documentation import views
from taskstore_project.documentation.markdown import Document
from taskstore_project.documentation.pages import LIBRARY, Library, search

from ..accessibility import complaints
from ..security.test_headers import BROWSER, assert_nothing_inline, assert_strict

pytestmark = [pytest.mark.once, pytest.mark.django_db]

NAMES = LIBRARY.names()
WIDTHS = [1440, 1280, 1000, 390, 320]
# One of each kind.
PAGES = ("", "settings/", "client/", "files/docs/deployment", "find/?q=lease", "find/?q=zzz")


class Page(HTMLParser):
    """What a browser takes from a page: where it leads, where it can be led to, and what it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        own = dict(attributes)
        self.links += [own[name] for name in ("href", "src", "action") if own.get(name)]
        self.anchors += [own["id"]] if "id" in own else []

    def handle_data(self, data):
        self.text += data


def shown(address: str) -> str:
    with closing(Client().get(address, headers=BROWSER)) as answer:
        assert answer.status_code == 200, address
        return answer.content.decode()


def url_of(name: str) -> str:
    return f"/docs/{name}/" if name else "/docs/"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A documentation of two pages."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Index\n\n## Learn\n\n* [A page](page.md): of ours\n")
    (tmp_path / "docs" / "page.md").write_text("# A page\n\nText.\n")
    library = Library(tmp_path, tmp_path)
    monkeypatch.setattr(views, "LIBRARY", library)
    return library


def rendered(text: str) -> str:
    return str(Document(text, resolve=lambda link: link, measure=lambda link: None).html)


def test_every_page_is_in_the_contents_once():
    listed = [entry.name for group in LIBRARY.groups() for entry in group.entries]
    assert sorted(listed) == sorted(set(NAMES) - {""})
    first = Page(shown("/docs/"))
    assert {url_of(name) for name in NAMES} <= set(first.links)
    # These addresses are the search's and the files'.
    assert not {"find", "files"} & set(NAMES)


def test_every_link_leads_to_a_page_a_file_or_an_anchor_that_exists(client):
    pages = {url_of(name): Page(shown(url_of(name))) for name in NAMES}
    pages["/docs/files/docs/deployment"] = Page(shown("/docs/files/docs/deployment"))
    for address, page in pages.items():
        assert len(page.anchors) == len(set(page.anchors)), f"{address} has an anchor twice"
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            path = parts.path or address
            if path in pages:
                assert not parts.fragment or parts.fragment in pages[path].anchors, f"{address}: {link}"
            elif not path.startswith("/static/"):
                with closing(client.get(link, headers=BROWSER)) as answer:
                    # The console is behind a sign-in.
                    assert answer.status_code == (302 if path.startswith("/console/") else 200), f"{address}: {link}"


@pytest.mark.parametrize("name", NAMES)
def test_each_page_is_strict_and_for_everybody(client, name):
    answer = client.get(url_of(name), headers=BROWSER)
    assert answer.status_code == 200
    assert_strict(answer)
    text = answer.content.decode()
    assert not re.search(r"<style| style=|<script>| on\w+=", text)
    assert not re.search(r"<!--|not run:|Made by `?manage", text)
    assert text.count("<h1") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/docs", "/docs/"),
        ("/docs/index.html", "/docs/"),
        ("/docs/README.md", "/docs/"),
        ("/docs/client", "/docs/client/"),
        ("/docs/client.html", "/docs/client/"),
        ("/docs/client.md", "/docs/client/"),
    ],
)
def test_older_addresses_lead_to_the_page(client, old, new):
    assert client.get(old)["Location"] == new


@pytest.mark.parametrize(
    "path",
    [
        *("nothing/", "nothing.html", "nothing", "client/nothing", "%2e%2e/conf.py", "../manage.py", "/etc/passwd"),
        *("a%00b", "files/", "files/manage.py", "files/README.md", "files/docs/../manage.py", "files/docs/%2e%2e/x"),
        *("files//etc/passwd", "files/docs//console.png", "files/docs/nothing.png", "files/docs/a%00b", "files/.git/x"),
        *("files/taskstore_project/settings.py", "files/tasks_app", "files/var/secret_key", "files/docs/.hidden"),
    ],
)  # fmt: skip
def test_there_is_nothing_else(client, path):
    answer = client.get(f"/docs/{path}", headers=BROWSER)
    assert answer.status_code in (400, 404)
    assert_strict(answer)
    assert_nothing_inline(answer)


def test_a_link_out_of_the_folder_is_not_followed(client, library):
    (library.root / "secret").write_text("secret")
    (library.root / "docs" / "link.txt").symlink_to(library.root / "secret")
    assert client.get("/docs/files/docs/link.txt").status_code == 404


@pytest.mark.parametrize("path", ["", "client/", "find/", "files/docs/console.png", "client.html"])
def test_nobody_can_write_there(client, path):
    assert client.post(f"/docs/{path}").status_code == 405


def test_what_a_browser_has_is_not_sent_again(client):
    first = client.get("/docs/client/")
    assert first["Cache-Control"] == "no-cache"
    assert client.get("/docs/client/", headers={"if-none-match": first["ETag"]}).status_code == 304
    client.cookies["theme"] = "dark"
    assert client.get("/docs/client/", headers={"if-none-match": first["ETag"]}).status_code == 200


def test_a_page_may_be_beside_the_index_and_have_two_titles_and_a_picture_that_is_none(client, library):
    (library.root / "docs" / "stray.md").write_text("# A page\n\n# Another\n\n![a](a.png) ![b](b.png)\n")
    (library.root / "docs" / "a.png").write_text("text")
    html = client.get("/docs/stray/").content.decode()
    assert '<h2 id="another"' in html
    assert 'a.png"' in html
    assert "width=" not in html.partition('a.png"')[2].partition(">")[0]
    assert client.get("/docs/nothing/").status_code == 404
    assert library.document("../stray") is None


def test_a_page_that_has_changed_is_shown_anew(client, library):
    assert "Text." in client.get("/docs/page/").content.decode()
    (library.root / "docs" / "page.md").write_text("# A page\n\nAnother text.\n")
    assert "Another text." in client.get("/docs/page/").content.decode()


def test_a_file_is_shown_as_text_and_a_picture_as_a_picture(client):
    for path, kind in {
        "docs/examples/rest/lease.py": "text/plain; charset=utf-8",
        "docs/console.png": "image/png",
    }.items():
        with closing(client.get(f"/docs/files/{path}")) as answer:
            assert answer["Content-Type"] == kind
            assert b"".join(answer.streaming_content) == (PROJECT / path).read_bytes()


def test_html_in_a_page_is_shown_as_text_and_a_comment_not_at_all():
    text = "<!-- not run: secret -->\n<script>alert(1)</script>\n\nA <b>word</b><!-- hidden -->.\n\n[x](javascript:a)\n"
    html = rendered(text)
    assert "secret" not in html
    assert "hidden" not in html
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html
    assert 'href="javascript' not in html


def test_a_heading_has_an_anchor_and_a_link_to_it():
    html = rendered("# A\n\n## What `serve` does\n\n## Again\n\n## Again\n")
    assert re.findall(r'id="([^"]+)"', html) == ["what-serve-does", "again", "again-1"]
    assert 'class="permalink" href="#what-serve-does" aria-label="Link to “What serve does”"' in html


def test_code_is_coloured_by_classes_and_an_aligned_column_has_one():
    assert '<span class="nb">print</span>' in rendered("```python\nprint(1)\n```\n")
    assert "a &lt; b" in rendered("```nonsense\na < b\n```\n")
    html = rendered("| a | b |\n|---|--:|\n| 1 | 2 |\n")
    assert '<td class="align-right">2</td>' in html
    assert "style" not in html


def test_a_search_finds_sections_and_marks_the_words(client):
    page = client.get("/docs/find/?q=TASKSTORE_retention", headers=BROWSER)
    assert_strict(page)
    text = page.content.decode()
    assert 'href="/docs/settings/#storage-and-retention"' in text
    assert "<mark>TASKSTORE_RETENTION</mark>" in text
    assert 'value="TASKSTORE_retention"' in text


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("client", "client"),
        ("backup", "backup"),
        ("nginx", "deployment"),
        ("rest api", "rest"),
        ("immutable", "why-immutable"),
    ],
)
def test_a_search_names_the_page_about_it_first(question, name):
    assert search(LIBRARY, question)[0].url == url_of(name)


def test_words_in_different_sections_are_found_after_others(library):
    (library.root / "docs" / "page.md").write_text("# A page\n\n## One\n\nalpha\n\n## Two\n\nbeta\n")
    (library.root / "docs" / "other.md").write_text("# Other\n\nalpha beta\n")
    assert [page.url for page in search(library, "beta alpha")] == ["/docs/other/", "/docs/page/"]
    assert [section.url for section in search(library, "beta")[1].sections] == ["/docs/page/#two"]
    assert search(library, "alpha gamma") == []


def test_a_question_is_escaped_and_an_overlong_one_is_refused(client):
    text = client.get("/docs/find/", {"q": "<script>\0"}, headers=BROWSER).content.decode()
    assert "No page contains “&lt;script&gt;" in text
    answer = client.get("/docs/find/", {"q": "a" * 201}, headers=BROWSER)
    assert answer.status_code == 400
    assert "q: must be at most 200 characters" in answer.content.decode()
    assert client.get("/docs/find/").status_code == 200


@pytest.mark.browser
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_for_everybody_and_no_wider_than_the_window(chromium, live_server, path):
    # Colours that are still fading in would be measured as they are on the way.
    chromium.emulate_media(reduced_motion="reduce")
    chromium.goto(f"{live_server.url}/docs/{path}")
    for width in WIDTHS:
        chromium.set_viewport_size({"width": width, "height": 800})
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width
        if width in (1280, 390):
            assert complaints(chromium) == []


@pytest.mark.browser
def test_the_keyboard_is_enough(chromium, live_server):
    chromium.set_viewport_size({"width": 390, "height": 800})
    chromium.goto(f"{live_server.url}/docs/client/")
    chromium.keyboard.press("Tab")
    chromium.keyboard.press("Enter")
    assert chromium.evaluate("document.activeElement.id") == "content"
    chromium.focus(".top .contents-button")
    chromium.keyboard.press("Enter")
    assert chromium.locator("#contents").is_visible()
    chromium.keyboard.press("Escape")
    assert not chromium.locator("#contents").is_visible()
    chromium.focus(".sections summary")
    chromium.keyboard.press("Enter")
    chromium.locator(".sections a", has_text="Errors").press("Enter")
    assert chromium.url.endswith("/docs/client/#errors")


@pytest.mark.browser
def test_the_search_finds_a_page(chromium, live_server):
    chromium.goto(f"{live_server.url}/docs/")
    chromium.fill("#find", "TASKSTORE_RETENTION")
    chromium.press("#find", "Enter")
    chromium.click("main a[href^='/docs/settings/#']")
    assert chromium.title() == "Settings · Task Store"
