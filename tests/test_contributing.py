"""docs/CONTRIBUTING.md leads to files and names that are there, and its commands can be typed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.faults import all_faults
from lab.testing import PROJECT

pytestmark = pytest.mark.once

PAGE = (PROJECT / "docs" / "CONTRIBUTING.md").read_text()
ROW = re.compile(r"^\|[^|]*\| `([\w/.]+)` \| (.*) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE)


def names_in(file: Path) -> Iterator[str]:
    """What a module defines, and `Class.what` of what its classes do."""
    for node in ast.parse(file.read_text()).body:
        for name in _names_of(node):
            yield name
            yield from (f"{name}.{inner}" for each in getattr(node, "body", ()) for inner in _names_of(each))


def _names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = {ast.Assign: "targets", ast.AnnAssign: "target"}.get(type(node))
    found = getattr(node, targets) if targets else []
    return [each.id for each in (found if isinstance(found, list) else [found]) if isinstance(each, ast.Name)]


@pytest.mark.parametrize(("file", "names"), ROWS, ids=[file for file, _ in ROWS])
def test_what_to_look_at_is_there(file, names):
    wanted = re.findall(r"`([\w.]+)`", names)
    assert wanted
    assert [name for name in wanted if name not in set(names_in(PROJECT / file))] == []


def test_every_place_that_it_names_is_there():
    places = set(re.findall(r"`((?:tests|tasks_app|taskstore_project|requirements|\.ci)/[\w/.]+)`", PAGE))
    assert len(places) > 20
    assert [place for place in places if not (PROJECT / place).exists()] == []


def test_what_it_runs_is_there():
    [commands] = [
        block for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "bench" in block
    ]
    [tests] = {word for word in commands.split() if word.startswith("tests/")}
    [words] = re.findall(r"-k (\w+)", commands)
    assert any(words in name for name in names_in(PROJECT / tests))


def test_the_way_of_a_claim_is_short():
    way = PAGE.partition("`POST /claim`, from the socket to the rule:")[2].partition("`transact` is a generator")[0]
    files = [file for file, _ in ROW.findall(way)]
    assert files[-1] == "tasks_app/core/rules.py"
    assert len(files) <= 7
    assert len(set(files)) <= 5


# ---- The seeded faults have a place in the product as it is now, and tests that can notice them


def test_each_fault_has_its_place_and_its_tests():
    faults = all_faults()  # Raises when a place is gone.
    assert len(faults) > 50
    missing = {name for fault in faults for name in fault.tests if not (PROJECT / name.split("::")[0]).exists()}
    assert missing == set()
