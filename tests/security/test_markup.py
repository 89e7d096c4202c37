"""Nothing is put into a page as markup that may come from a task: what does so is on a short list, with its reason."""

import re

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

# What takes text for markup, each with a place where it would be written.
IN_TEMPLATES = r"\|\s*safe(?:seq)?\b|\bautoescape\b|\|\s*escapejs\b|<script>|\bstyle=|\son\w+=|javascript:"
IN_CODE = (
    r"\bmark_safe\b|\bSafe(?:String|Text|Data)\b|\bhtml_safe\b|__html__|\bformat_html(?:_join)?\b|is_safe=|autoescape"
)
IN_SCRIPTS = (
    r"\b(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    r"|DOMParser|srcdoc|\bsetHTMLUnsafe"
)

# Each puts what it is given into the markup around it through Django's escaping.
REASONS = {
    "tasks_app/admin/tasks.py": "links to a group, a task and its trail; names and addresses are escaped",
    "taskstore_project/documentation/markdown.py": "headings and code of our own pages; their text is escaped",
    "taskstore_project/documentation/pages.py": "excerpts of our own pages; all of them is escaped",
}


def found(folders: tuple[str, ...], suffix: str, pattern: str) -> set[str]:
    """The files, from the project on, in which there is any of it."""
    files = [
        file for folder in folders for file in (PROJECT / folder).rglob(f"*{suffix}") if "vendor" not in file.parts
    ]
    assert len(files) > 5
    return {str(file.relative_to(PROJECT)) for file in files if re.search(pattern, file.read_text())}


def test_no_template_takes_text_for_markup():
    assert found(("templates", "tasks_app", "taskstore_project"), ".html", IN_TEMPLATES) == set()


def test_code_takes_for_markup_what_is_on_the_list():
    assert found(("taskstore", "tasks_app", "taskstore_project"), ".py", IN_CODE) == set(REASONS)


def test_what_is_on_the_list_is_literal_with_places_for_what_is_escaped():
    for name in REASONS:
        calls = re.findall(r"format_html\(\s*(.)(.*)", (PROJECT / name).read_text())
        assert calls
        assert [rest for quote, rest in calls if quote not in "'\""] == []


def test_no_script_takes_text_for_markup():
    assert found(("static/js",), ".js", IN_SCRIPTS) == set()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (IN_TEMPLATES, "{{ task.data|safe }}"),
        (IN_TEMPLATES, "{% autoescape off %}"),
        (IN_TEMPLATES, '<p onclick="go()">'),
        (IN_CODE, "return mark_safe(data)"),
        (IN_CODE, "register.filter(name, function, is_safe=True)"),
        (IN_SCRIPTS, "cell.innerHTML = name;"),
    ],
)
def test_it_would_be_found(pattern, text):
    assert re.search(pattern, text)
