"""The page of what failed, and the same on the page of a group."""

import re
from html import unescape

import pytest

from .store import add

pytestmark = pytest.mark.django_db


def page(client, path="/console/failed"):
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def links(html):
    return [
        unescape(link)
        for link in re.findall(r'href="(/console/search\?q=error[^"]*|/console/search\?q=group[^"]*)"', html)
    ]


def test_it_has_a_row_for_each_signature(viewer):
    for number in range(3):
        add(error=f"timed out after {number} s")
    add("reports", error="refused")
    html = page(viewer)
    assert re.findall(r'<code class="error">([^<]*)<', html) == ["timed out after * s", "refused"]
    assert "reports" in html.partition("refused")[2]


def test_on_the_page_of_a_group_it_is_about_that_group(viewer):
    add(error="timed out"), add("reports", error="refused")
    html = page(viewer, "/console/group?name=mail&state=retrying")
    assert re.findall(r'<th role="rowheader"[^>]*><a [^>]*><code class="error">([^<]*)<', html) == ["timed out"]
    assert all("group%3A%22mail%22" in link for link in links(html))
    assert "<summary>1 error</summary>" in html
    assert "<summary>" not in page(viewer, "/console/group?name=mail")
    add(error="refused")
    assert "<summary>2 different errors</summary>" in page(viewer, "/console/group?name=mail&state=retrying")
