"""Data for people: lines, text, trees, hex."""

import json

import pytest

from tasks_app.console import json_tree, payload
from tasks_app.console.payload import Form

pytestmark = pytest.mark.once


def test_it_shows_json_as_a_tree_text_as_text_and_the_rest_as_hex():
    assert payload.show(b'{"a": 1}').form is Form.TREE
    assert payload.show(b"hello").form is Form.TEXT
    assert payload.show(b"\xff\xfe").form is Form.HEX


@pytest.mark.parametrize(
    ("data", "kind"), [(b"", "empty"), (b"{}", "JSON"), (b"hello", "text"), (b"\x80", "binary"), (b'{"a":', "text")]
)
def test_it_says_what_data_is(data, kind):
    assert payload.show(data).kind == kind


def test_it_cuts_long_text_between_characters():
    shown = payload.show(b"x" + "é".encode() * payload.TEXT_BYTES)
    assert shown.is_cut
    assert shown.form is Form.TEXT
    assert set(shown.text) == {"x", "é"}


def test_it_shows_the_beginning_of_what_is_not_all_there():
    shown = payload.show(b'{"a": 1}', size=10_000_000)
    assert (shown.form, shown.is_cut, shown.size) == (Form.TEXT, True, 10_000_000)
    assert payload.show(b'{"a": "\xff"}', size=10_000_000).form is Form.HEX


@pytest.mark.parametrize(
    ("start", "size", "line"),
    [
        (b"hello", 5, "hello"),
        (b"hello", 6, "hello…"),
        (b"a\n  b\tc ", 8, "a b c"),
        ("é".encode()[:1], 2, "…"),
        (b"\xff" * 3, 3, "ff ff ff"),
        (b"\xff" * 40, 40, " ".join(["ff"] * 32) + " …"),
    ],
)
def test_it_writes_the_beginning_in_a_line(start, size, line):
    assert payload.one_line(start, size) == line


def texts(data: bytes) -> list[str]:
    return [(f"{line.key}: " if line.key else "") + line.text for line in json_tree.lines_of(data)]


def test_it_opens_and_closes_in_balance():
    lines = json_tree.lines_of(json.dumps([[[[1], 2]], {"a": {"b": [3]}}]).encode())
    depth = 0
    for line in lines:
        depth += {"open": 1, "close": -1}.get(line.kind, 0)
        assert depth > 0 or line is lines[-1]
    assert depth == 0


@pytest.mark.parametrize(
    "data",
    [
        b'"text"', b"1", b"{", b"[NaN]", b"\xff[]", b"[" * 100_000, b"[" * 500 + b"]" * 500,
        b"[" + b"1," * 5_000 + b"1]", b'["' + b"x" * json_tree.MOST_BYTES + b'"]',
    ],
    ids=["text", "number", "broken", "NaN", "bytes", "deeper than Python", "deep", "long", "large"],
)  # fmt: skip
def test_it_makes_no_tree_of_what_is_none_or_too_large(data):
    assert json_tree.lines_of(data) == []
