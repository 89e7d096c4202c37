"""A list of tasks is read however it is cut into pieces."""

import json

import pytest

from taskstore import UnexpectedAnswer
from taskstore.client.verbs import TaskListParser

pytestmark = pytest.mark.once

REST = {"timespec": 1, "ownerid": 2, "error": "", "labels": {}, "priority": 0, "origin": 1, "claims": 0, "created": 1}
TASKS = [
    {"id": number, "group": "mail", "data": data, **REST} for number, data in enumerate(["", 'é"]},{', "😀" * 999])
]


def read(content: bytes, size: int) -> list[str]:
    parser = TaskListParser()
    pieces = [content[place : place + size] for place in range(0, len(content), size)]
    found = [task for piece in pieces for task in parser.feed(piece)]
    return [task.text for task in [*found, *parser.end()]]


@pytest.mark.parametrize("size", [1, 2, 7, 100, 10_000])
def test_in_pieces_of_any_size(size):
    content = json.dumps(TASKS, ensure_ascii=False).encode()
    assert read(content, size) == [task["data"] for task in TASKS]
    assert read(b"[]", size) == []


@pytest.mark.parametrize("content", [b'[{"id": 1', b"<html>", b'{"detail": "no list"}', b"[1]"])
def test_what_is_no_list_of_tasks_is_an_error(content):
    with pytest.raises(UnexpectedAnswer):
        read(content, 4)
