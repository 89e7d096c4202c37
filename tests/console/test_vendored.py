"""What others made is what static/vendor/README.md says."""

import hashlib
import re

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

VENDOR = PROJECT / "static" / "vendor"
NOTED = {
    path: digest
    for digest, path in re.findall(r"\| `([0-9a-f]{64})` \| `([^`]+)` \|", (VENDOR / "README.md").read_text())
}


def test_it_has_the_hash_that_is_noted_for_each_file():
    files = [file for kind in ("*.js", "*.woff2") for file in VENDOR.rglob(kind)]
    assert {str(file.relative_to(VENDOR)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files} == NOTED


def test_it_keeps_the_licence_beside_the_files():
    for folder in {path.partition("/")[0] for path in NOTED}:
        assert [file for file in (VENDOR / folder).iterdir() if file.name in ("LICENSE", "OFL.txt")]


def test_it_names_no_other_place_in_styles_scripts_and_templates():
    ours = [*PROJECT.glob("static/css/*"), *PROJECT.glob("static/js/*"), *PROJECT.glob("templates/**/*.html")]
    assert ours
    assert [
        file
        for file in ours
        if re.search(r"""(src|href|url\(|import|from)\s*=?\s*["'(]?(https?:)?//""", file.read_text())
    ] == []


def test_it_marks_nothing_safe_in_templates_and_tags():
    ours = [
        *PROJECT.glob("templates/**/*.html"),
        *PROJECT.glob("tasks_app/console/*.py"),
        *PROJECT.glob("tasks_app/templatetags/*.py"),
    ]
    assert [
        file for file in ours if re.search(r"\|\s*safe\b|autoescape off|mark_safe|SafeString|safeseq", file.read_text())
    ] == []
