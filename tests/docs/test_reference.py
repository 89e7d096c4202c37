"""The pages that are made from the product are those of the product as it is."""

import re

import pytest

from lab.documentation import reference
from lab.testing import PROJECT
from taskstore.endpoints import ENDPOINTS, SCHEMA
from taskstore.errors import TaskStoreError

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("name", "text"), reference.pages().items(), ids=reference.pages())
def test_a_page_is_up_to_date(name, text):
    page = PROJECT / "docs" / name
    assert page.read_text() == text, "run `manage.py docs reference`"


def test_every_path_is_told():
    told = re.findall(r"^### ([A-Z]+ /.*)$", reference.pages()["rest.md"], re.MULTILINE)
    # The description does not describe itself.
    assert sorted(told) == sorted(f"{each.method} {each.path}" for each in ENDPOINTS if each is not SCHEMA)


def test_every_error_is_told():
    def below(kind):
        return {kind, *(each for child in kind.__subclasses__() for each in below(child))}

    page = reference.pages()["errors.md"]
    own = {kind for kind in below(TaskStoreError) if kind.__module__ == "taskstore.errors"} - {TaskStoreError}
    assert [kind.code for kind in own if f"| `{kind.code}` | `{kind.__name__}` |" not in page] == []
