"""docs/worker.md tells every option, and its functions do what it says of them."""

import inspect
import json
import re
import threading
from typing import Any

import pytest

from lab.testing import PROJECT
from taskstore import LeaseLost, Worker
from taskstore.worker.handlers import Context, How

from .patience import wait_for, wait_for_last_requests

pytestmark = pytest.mark.once

PAGE = (PROJECT / "docs" / "worker.md").read_text()
PROGRAM = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def space(served, token, monkeypatch):
    """The page's own worker, with its functions."""
    monkeypatch.setenv("TASKSTORE_URL", served.url)
    monkeypatch.setenv("TASKSTORE_TOKEN", token)
    space: dict[str, Any] = {}
    exec(PROGRAM.replace("lease_ms=30_000", "wait_ms=200, grace_s=0"), space)  # noqa: S102 - our own page.
    yield space
    wait_for_last_requests()
    space["worker"].store.close()


def test_every_option_is_told_with_its_default():
    said = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", PAGE.partition("## Outcomes")[0], re.MULTILINE))
    options = inspect.signature(Worker).parameters.values()
    defaults = {each.name: each.default for each in options if each.kind is each.KEYWORD_ONLY}
    assert said.keys() == defaults.keys()
    assert {name: said[name] for name in said if said[name].isdecimal()} == {
        name: str(default) for name, default in defaults.items() if isinstance(default, int | float)
    }


def test_every_ending_is_told():
    assert [how for how in How if f"`{how}`" not in PAGE] == []


def test_its_functions_do_what_it_says(space, store):
    config = store.add("config")
    draft = store.add("drafts", "a", labels={"tier": "gold"})
    store.add("orders", "wheel bell"), store.add("counters", "1")
    store.add("mail", "b", labels={"config": str(config.id)})
    running = threading.Thread(target=space["worker"].run)
    running.start()
    wait_for(lambda: space["worker"].ended == {"done": 4}, "the work")
    space["worker"].stop()
    running.join()
    found = {group: list(store.group(group, owned=True)) for group in store.groups()}
    assert {group: sorted(task.text for task in tasks) for group, tasks in found.items()} == {
        "config": [""], "counters": ["2"], "parts": ["bell", "wheel"], "published": ["a"], "sent": ["b"],
    }  # fmt: skip
    [published] = found["published"]
    assert (published.origin, published.labels) == (draft.id, {"tier": "gold"})


def test_long_work_ends_when_its_lease_is_lost(space, store):
    film, context = store.add("films", json.dumps({"pieces": [1, 2]})), Context(1, "encoder")
    space["encode"](film, context)
    context.lost.set()
    with pytest.raises(LeaseLost):
        space["encode"](film, context)
