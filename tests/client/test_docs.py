"""docs/client.md tells every verb and every error, and its programs run."""

import re
from typing import Any

import pytest

import taskstore as package
from lab.testing import PROJECT
from taskstore import Context, Discard, NewTask, Save, TaskStoreError

from .test_verbs import CALLS

PAGE = (PROJECT / "docs" / "client.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ERRORS = [
    name
    for name, each in vars(package).items()
    if isinstance(each, type) and issubclass(each, TaskStoreError) and each is not TaskStoreError
]


def programs(containing):
    found = [program for program in PROGRAMS if containing in program]
    assert found
    return found


@pytest.mark.once
def test_every_verb_is_told():
    assert [name for name in CALLS if f"`{name}(" not in PAGE] == []


@pytest.mark.once
@pytest.mark.parametrize("containing", ["store.delete(task)", "bulk_start", "asyncio.run"])
def test_a_program_runs(containing, served, token, monkeypatch):
    monkeypatch.setenv("TASKSTORE_URL", served.url)
    monkeypatch.setenv("TASKSTORE_TOKEN", token)
    for program in programs(containing):
        exec(program, {"Client": package.Client})  # noqa: S102 - our own page.


@pytest.mark.once
def test_the_worker_does_what_is_said(store):
    [program] = programs("worker.run()")
    space: dict[str, Any] = {}
    exec(program.replace("worker.run()", ""), space)  # noqa: S102 - our own page.
    send, context = space["send"], Context(attempt=1, worker="mailer")
    assert send(store.add("mail", "ann@example.org"), context) == NewTask(group="sent", data=b"ann@example.org")
    with pytest.raises(Discard):
        send(store.add("mail"), context)
    with pytest.raises(Save, match="not an address"):
        send(store.add("mail", "ann"), context)
