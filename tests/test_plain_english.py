"""What people read has plain words: the documentation, the pages, and the strings of the code."""

import ast
import re

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

# Phrases that sound translated, and second words for things that have one.
ANYWHERE = re.compile(
    r"\b(?:makes? no sense|(?:is|are) like that|what can be done|what came of it|whoever|whosever|for ever|anew"
    r"|(?:is|are|was|were) told|(?:was|were|been|none) heard|claims find nothing|no longer there|drained|bears?"
    r"|puts? right|opens nothing|taken? back|nothing is known|it (?:has to|is to) be|if there is one)\b",
    re.IGNORECASE,
)
ON_PAGES = re.compile(
    r"(?<![\w-])(?:tells|(?:stands?|lies?|lay|stood) (?:in|there|beside)|(?:comes?|came) to|came of|mended|parked)"
    r"(?![\w-])",
    re.IGNORECASE,
)
IN_CODE = re.compile(
    r"\b(?:by hand|what (?:happened|became of)|stands? (?:in|on|beside|for|there|still)|nobody's|meanwhile|once more"
    r"|no undo|there is no such|has gone|somebody|does not answer|one a line|must be from|may not (?:do|see)"
    r"|the newest first|(?:has|have) to (?:be|have)|queue item|work item|time-out|heart beat)\b",
    re.IGNORECASE,
)
ABOUT_CODE = ("errors.md", "how-it-works.md", "CONTRIBUTING.md")
PAGES = [
    *(PROJECT / name for name in ("README.md", "CHANGELOG.md")),
    *(page for page in sorted(PROJECT.glob("docs/*.md")) if page.name not in ABOUT_CODE),
    *sorted(PROJECT.glob("docs/deployment/*")),
]
TEMPLATES = sorted(PROJECT.glob("templates/**/*.html"))
MODULES = [
    file
    for package in ("taskstore", "tasks_app", "taskstore_project")
    for file in sorted((PROJECT / package).rglob("*.py"))
    if not file.name.endswith(("_pb2.py", "_pb2_grpc.py")) and "migrations" not in file.parts
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_plain_words(page):
    prose = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [found[0] for banned in (ANYWHERE, ON_PAGES) for found in banned.finditer(" ".join(prose.split()))] == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_has_plain_words(template):
    text = re.sub(
        r"{#.*?#}|<script.*?</script>|{%[^%]*%}|{{[^}]*}}|<[^>]*>", " ", template.read_text(), flags=re.DOTALL
    )
    assert [found[0] for banned in (ANYWHERE, IN_CODE) for found in banned.finditer(" ".join(text.split()))] == []


def test_the_strings_of_the_code_have_plain_words():
    found = [
        f"{file.relative_to(PROJECT)}: {match[0]} in {text}"
        for file in MODULES
        for text in strings_of(ast.parse(file.read_text()))
        for banned in (ANYWHERE, IN_CODE)
        for match in banned.finditer(text)
    ]
    assert found == []


def strings_of(tree):
    """Those that are more than a name, without docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value if " " in node.value else ""


def test_every_state_is_in_the_glossary():
    terms = set(re.findall(r"^\| ([\w ]+) \|", (PROJECT / "docs" / "glossary.md").read_text(), re.MULTILINE))
    assert {"ready", "claimed", "expired", "scheduled", "failed", "task", "group", "lease", "origin"} <= terms
