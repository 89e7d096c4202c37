"""What people read uses no phrase that sounds translated, and one word for each thing.

A place is where texts are, and how they are told from code. To hold the documentation, the command line or another
package to the same list, add a place to PLACES.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent

# Each with what to write instead.
BANNED = {
    r"\b(?:is|are) like that\b": "match, matching",
    r"\bmakes? no sense\b": "is invalid",
    r"\bby hand\b": "administration, or the verb",
    r"\bwhat can be done\b": "actions",
    r"\bwhat (?:happened|came of it|became of)\b": "timeline, result",
    r"(?:^|… )facts\b": "details",
    r"\bstands? (?:in|on|beside|for|there|still)\b": "is in, means",
    r"\blies? (?:in|on|there|beside|among)\b": "is in",
    r"\bcomes? (?:to|of) (?:it|an?|the|nothing)\b|\bnothing comes (?:due|of)\b": "results in",
    r"\b(?:was|were|been|none) heard\b|\bheard (?:of|from)\b": "heartbeat, reporting",
    r"\b(?:is|are|was|were) told\b|\btells? (?:of|so)\b": "is reported, says",
    r"\bwhoever\b|\bwhosever\b|\bnobody's\b": "name the subject",
    r"\bfor ever\b|\banew\b|\bmeanwhile\b|\bonce more\b": "in the meantime, again",
    r"\blook(?:s|ed)? (?:at it|again|further)\b|\blooked (?:for|into)\b": "view, review, search further",
    r"\bno undo\b|\btaken? back\b": "can't be undone, undo",
    r"\bthere is no such\b": "not found, does not exist",
    r"\bnothing is known\b|\bnot known here\b|\bis known of\b": "does not exist, unknown",
    r"\bno longer there\b|\bhas gone\b|\bwent with\b": "no longer exists",
    r"\bclaims find nothing\b": "hands out no tasks",
    r"\bopens nothing\b|\bgets? in(?: no)?\b|\blets? (?:nobody|them) in\b": "loses access, signs in",
    r"\bit (?:has to|is to) be\b": "must be",
    r"\bdoes not answer\b|\bby itself alone\b": "is not responding",
    r"\bif there is one\b": "optional",
    r"\bone a line\b|\ba task a line\b|\ba (?:minute|second) (?:each|at most)\b": "one per line, per minute",
    r"\bfrom -?\d+ to \d+, not\b|\bmust be from\b": "must be between A and B, not C",
    r"(?:^|[.:] )Empty: ": "Leave empty for",
    r"\b(?:stays|is) as it is\b|\bas they are\b": "stays unchanged",
    r"\bwhat (?:the|a) worker commits\b|\bis refused\b": "the worker's result will be rejected",
    r"\bsomebody\b": "someone",
    r"\bmay do this\b|\bmay not (?:do|see)\b|\bdoes not let you\b": "permission, does not allow you to",
    r"\bthis is shown only now\b|\bI have it\b": "is shown only once, done",
    r"\bput(?:s|ting)? right\b": "fix",
    r"\bdrained\b": "empty in",
    r"\bbears?\b": "has",
    r"\b[Mm]ake (?:the|a) (?:token|schedule|person)\b|\bMade the\b": "create",
    r"\bthe newest first\b": "newest first",
    r"\bparameters? by (?:name|position)\b": "positional arguments, keyword arguments",
    r"\b(?:has|have) to (?:be|have)\b": "must be",
    r"(?<!there )\bis no (?!longer\b|more than\b)[a-z]+\b": "is not a",
    r"\bno such (?!host\b|recipient\b|table\b)": "is not known, does not exist",
    r"^(?-i:at most|from|an? integer|a whole number from|text that|either) ": "must have at most, must be",
    r"\bgoes? on (?:as|at|from|until)\b": "continues, is now",
    r"\bthis is not what\b|\bnot there to be\b|\bnone is there\b": "invalid, does not exist",
    # Two words for one thing.
    r"\bqueue item\b|\bwork item\b": "task",
    r"\btime-out\b": "timeout",
    r"\bheart beat\b": "heartbeat",
}


@dataclass(frozen=True)
class Text:
    """A text that people read, and where it is."""

    where: str
    words: str


def texts_of_template(path: Path) -> Iterator[str]:
    """The text between the tags of a template, and that of attributes which people see or hear."""
    source = re.sub(r"{#.*?#}|<script.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    yield from re.findall(r'(?:aria-label|placeholder|title|label|hint|words)="([^"]*)"', source)
    # A tag or a value within a sentence must not part it.
    bare = re.sub(r"{%[^%]*%}|{{[^}]*}}", " … ", source)
    for part in re.split(r"</?(?:p|h\d|dt|dd|li|th|td|option|button|label|title|legend|summary|div)\b[^>]*>", bare):
        yield re.sub(r"<[^>]*>", "", part)


def texts_of_script(path: Path) -> Iterator[str]:
    """The strings of a script, without its comments."""
    source = re.sub(r"(?:^|(?<=\s))//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    yield from re.findall(r""""[^"\n]*"|'[^'\n]*'|`[^`]*`""", source)


def texts_of_module(path: Path) -> Iterator[str]:
    """The strings of a Python module that are more than a name, without docstrings and what f-strings insert."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value if " " in node.value or node.value.istitle() else ""


def texts_of_help(path: Path) -> Iterator[str]:
    """As of a module, with the docstrings of its commands: they are its help."""
    yield from texts_of_module(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and any("command(" in ast.unparse(each) for each in node.decorator_list):
            yield ast.get_docstring(node) or ""


def texts_of_page(path: Path) -> Iterator[str]:
    """The paragraphs of a page of documentation, without its examples."""
    source = re.sub(r"```.*?```|`[^`\n]*`", " … ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    yield from source.split("\n\n")


@dataclass(frozen=True)
class Place:
    """Files, and what of them people read."""

    files: str
    texts: Callable[[Path], Iterator[str]]


PLACES = (
    Place("templates/**/*.html", texts_of_template),
    Place("static/js/*.js", texts_of_script),
    Place("tasks_app/console/*.py", texts_of_module),
    Place("tasks_app/admin/*.py", texts_of_module),
    Place("tasks_app/access/*.py", texts_of_module),
    Place("tasks_app/bulk/*.py", texts_of_module),
    Place("tasks_app/control/*.py", texts_of_module),
    Place("tasks_app/templatetags/*.py", texts_of_module),
    Place("tasks_app/core/*.py", texts_of_module),
    Place("tasks_app/wire/*.py", texts_of_module),
    Place("tasks_app/rest_api/*.py", texts_of_module),
    Place("tasks_app/grpc_api/*.py", texts_of_module),
    Place("tasks_app/commands/*.py", texts_of_module),
    Place("tasks_app/jobs/*.py", texts_of_module),
    Place("tasks_app/schedules/*.py", texts_of_module),
    Place("tasks_app/conf/*.py", texts_of_module),
    Place("tasks_app/database/*.py", texts_of_module),
    Place("tasks_app/writer/*.py", texts_of_module),
    Place("tasks_app/live/*.py", texts_of_module),
    Place("tasks_app/reading/**/*.py", texts_of_module),
    Place("tasks_app/tasks_backend/*.py", texts_of_module),
    Place("tasks_app/management/**/*.py", texts_of_module),
    Place("tasks_app/*.py", texts_of_module),
    Place("taskstore/types/*.py", texts_of_module),
    Place("taskstore/client/*.py", texts_of_module),
    Place("taskstore/cli/*.py", texts_of_help),
    Place("taskstore/commands/**/*.py", texts_of_module),
    Place("taskstore/jobs/*.py", texts_of_module),
    Place("taskstore/worker/*.py", texts_of_module),
    Place("taskstore/*.py", texts_of_module),
    Place("taskstore_project/*.py", texts_of_module),
    Place("taskstore_project/backup/*.py", texts_of_module),
    Place("taskstore_project/management/**/*.py", texts_of_module),
    Place("taskstore_project/serving/*.py", texts_of_module),
)


def texts_in(place: Place) -> list[Text]:
    return [
        Text(where=str(path.relative_to(ROOT)), words=" ".join(text.split()))
        for path in sorted(ROOT.glob(place.files))
        for text in place.texts(path)
        if text.strip()
    ]


def complaints(texts: list[Text]) -> list[str]:
    """Where a banned phrase is, and what to write instead."""
    return [
        f'{text.where}: "{found[0]}" in "{text.words[:160]}": write {instead}'
        for text in texts
        for banned, instead in BANNED.items()
        if (found := re.search(banned, text.words, re.IGNORECASE))
    ]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.files)
def test_what_people_read_is_plain_english(place):
    texts = texts_in(place)
    assert texts
    assert complaints(texts) == []


@pytest.mark.parametrize(
    ("name", "texts", "source"),
    [
        ("page.html", texts_of_template, "{# by hand #}<p>No task <b>{{ x }}</b> is <i>like that</i></p>"),
        ("page.html", texts_of_template, '<input aria-label="What can be done">'),
        ("page.html", texts_of_template, '{% include "_field.html" with hint="Empty: now." %}'),
        ("live.js", texts_of_script, '// by hand\nsay(`The server does not answer; ${number}.`);'),
        ("forms.py", texts_of_module, '"""By hand."""\nerror(f"Task {number}: nothing is known.")\n'),
        ("page.md", texts_of_page, "Say `by hand`.\n\n```sh\nby hand\n```\n\nIt makes\nno sense.\n"),
    ],
)  # fmt: skip
def test_a_banned_phrase_is_found_in_what_people_read_alone(tmp_path, name, texts, source):
    path = tmp_path / name
    path.write_text(source)
    found = [Text(where=name, words=" ".join(text.split())) for text in texts(path)]
    assert len(complaints(found)) == 1
