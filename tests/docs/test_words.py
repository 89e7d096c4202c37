"""The documentation uses the terms of docs/glossary.md and plain words."""

import re

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

DOCS = PROJECT / "docs"
# Made from the code, or about the code.
OTHERS = ("errors.md", "how-it-works.md", "CONTRIBUTING.md")
PAGES = [
    *(PROJECT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted(page for page in DOCS.glob("*.md") if page.name not in OTHERS),
    *sorted(DOCS.glob("deployment/*")),
    *(DOCS / name for name in ("alerts.yml", "grafana-dashboard.json")),
]
# Each with a better word.
BANNED = {
    "whoever": "name the subject",
    "whosever": "regardless of owner",
    "makes? no sense": "is invalid",
    "(is|are|was|were) told": "is reported",
    "tells": "reports, shows",
    "(stands?|lies?|lay|stood) (in|there|beside)": "is in, is listed in",
    "(comes?|came) to": "results in",
    "came of": "results",
    "(was|were|is|none) heard": "reported",
    "bears?": "is idempotent",
    "for ever": "permanently",
    "anew": "again",
    "mended": "fixed",
    "puts? right": "fix",
    "is like that": "matches",
    "claims find nothing": "hands out no tasks",
    "take it back": "undo",
    "no longer there": "no longer exists",
    "what can be done": "actions",
    "drained": "empty in",
    "parked": "stashed",
}
EVERYTHING = re.compile(rf"(?<![\w-])({'|'.join(BANNED)})(?![\w-])", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_plain_words(page):
    prose = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = {match[0].lower() for match in EVERYTHING.finditer(" ".join(prose.split()))}
    instead = [better for word in found for banned, better in BANNED.items() if re.fullmatch(banned, word)]
    assert not found, f"better words: {', '.join(instead)}"


def test_every_state_is_in_the_glossary():
    terms = set(re.findall(r"^\| ([\w ]+) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE))
    assert {"ready", "claimed", "expired", "scheduled", "failed", "task", "group", "lease", "origin"} <= terms
