"""Every block of the documentation does what it says. How to write one: pages.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lab.testing import PROJECT

from ..server.harness import empty
from .needs import NEEDS
from .pages import REASONS, blocks, pages
from .session import RUNS, Session

pytestmark = [pytest.mark.once, pytest.mark.servers]

ALL = {page: list(blocks(page)) for page in pages()}
# Pages whose blocks are run as one, by a test of their own.
ELSEWHERE = {"first-hour.md": "tests/server/test_readme.py", "migrating.md": "tests/server/test_migrating.py"}
TRIED = [page for page in ALL if page.name not in ELSEWHERE and any(block.is_run for block in ALL[page])]


@pytest.mark.parametrize("page", TRIED, ids=lambda page: page.name)
def test_the_blocks_of_a_page_do_what_they_say(page: Path, lasting_store, lasting_server, tmp_path):
    session = Session(tmp_path / "checkout", lasting_store, lasting_server)
    try:
        for block in filter(lambda block: block.is_run, ALL[page]):
            try:
                session.run(block)
            except Exception as problem:
                pytest.fail(f"{block}: {problem!r}\n{problem}", pytrace=False)
    finally:
        session.end()
        empty(lasting_server, lasting_store.token)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path):
    for block in ALL[page]:
        if block.is_run:
            assert block.language in RUNS or "file" in block.marks, f"{block}: a block of {block.language!r}"
            assert set(filter(None, block.marks.get("needs", "").split(", "))) <= NEEDS.keys(), str(block)
        else:
            assert block.marks["not run"] in REASONS, f"{block}: that is none of the REASONS in pages.py"


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_what_is_run_elsewhere_is_run_there(page, test):
    assert page in (PROJECT / test).read_text()


def test_most_blocks_are_run():
    everything = [block for page in ALL.values() for block in page]
    counts = Counter(block.is_run for block in everything if block.language != "text")
    assert counts[True] > counts[False], "run what can be run: pages.py tells how"


def test_each_page_has_a_title():
    assert [page.relative_to(PROJECT) for page in ALL if not page.read_text().startswith("# ")] == []
