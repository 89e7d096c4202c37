"""Names as a tree: by examples, and for whatever names there may be."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.console.name_tree import Folder, Node, is_prefix, tree_of
from tasks_app.reading.counts import Stats, sum_of
from tasks_app.writer.totals import Numbers
from taskstore.types.tasks import State

pytestmark = pytest.mark.once

NAMES = st.sets(st.text(alphabet="ab/.\N{HEBREW LETTER ALEF}", min_size=1, max_size=8), max_size=30)
SMALL = st.integers(min_value=0, max_value=1_000)
COUNTS = st.builds(Numbers, **dict.fromkeys(Numbers._fields[1:], SMALL))
STATS = st.builds(
    Stats,
    counts=COUNTS,
    oldest_ready_ms=st.none() | SMALL,
    in_per_minute=SMALL.map(float),
    out_per_minute=SMALL.map(float),
    is_paused=st.booleans(),
)


def drawn(nodes: Sequence[Node]) -> list:
    """Folders as pairs of their prefix and what is in them."""
    return [(node.prefix, drawn(node.nodes)) if isinstance(node, Folder) else node for node in nodes]


@pytest.mark.parametrize(
    ("names", "tree"),
    [
        ([], []),
        (["mail", "reports"], ["mail", "reports"]),
        (["mail/out", "mail/in", "reports"], [("mail/", ["mail/in", "mail/out"]), "reports"]),
        (["mail.in", "mail/in"], ["mail.in", "mail/in"]),
        # A prefix of one group is no folder, and a chain of folders is one.
        (["mail/out", "reports"], ["mail/out", "reports"]),
        (["a/b/c", "a/b/d"], [("a/b/", ["a/b/c", "a/b/d"])]),
        (["a/b/c", "a/b/d", "a/e"], [("a/", [("a/b/", ["a/b/c", "a/b/d"]), "a/e"])]),
        # A group beside the folder that bears its name.
        (["mail", "mail/in", "mail/out"], ["mail", ("mail/", ["mail/in", "mail/out"])]),
        (["mail", "mail-2", "mail/in", "mail/out"], ["mail", "mail-2", ("mail/", ["mail/in", "mail/out"])]),
        (["a/b.c", "a/b.d", "a.b/c"], ["a.b/c", ("a/b.", ["a/b.c", "a/b.d"])]),
        # Separators in front, at the end, and next to each other.
        (["/x", "/y", ".z"], [".z", ("/", ["/x", "/y"])]),
        (["a.", "a.b"], [("a.", ["a.", "a.b"])]),
        (["a//b", "a//c", "a/b"], [("a/", [("a//", ["a//b", "a//c"]), "a/b"])]),
        (["/", "//", "///"], [("/", ["/", ("//", ["//", "///"])])]),
    ],
)
def test_names_that_begin_alike_stand_in_a_folder(names, tree):
    assert drawn(tree_of(names)) == tree


def folders(nodes: Sequence[Node]) -> Iterator[Folder]:
    for node in nodes:
        if isinstance(node, Folder):
            yield node
            yield from folders(node.nodes)


def leaves(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        yield from leaves(node.nodes) if isinstance(node, Folder) else [node]


def test_the_deepest_tree_is_no_problem():
    names = ["/" * length for length in range(1, 256)]
    assert list(leaves(tree_of(names))) == names


@given(NAMES)
def test_names_with_a_prefix_in_common_stand_in_a_folder_of_it(names):
    prefixes = {folder.prefix for folder in folders(tree_of(names))}
    for one in names:
        for cut in (place for place in range(1, len(one) + 1) if is_prefix(one[:place])):
            alike = [name for name in names if name.startswith(one[:cut])]
            assert len(alike) == 1 or any(prefix.startswith(one[:cut]) for prefix in prefixes)


@given(st.lists(STATS))
def test_the_numbers_of_many_are_those_of_each_together(groups):
    whole = sum_of(groups)
    for state in (*State, "tasks"):
        assert getattr(whole.counts, state) == sum(getattr(group.counts, state) for group in groups)
    ages_ms = [group.oldest_ready_ms for group in groups if group.oldest_ready_ms is not None]
    assert whole.oldest_ready_ms == (max(ages_ms) if ages_ms else None)
    assert whole.in_per_minute == sum(group.in_per_minute for group in groups)
    assert whole.out_per_minute == sum(group.out_per_minute for group in groups)
    assert whole.is_paused == (bool(groups) and all(group.is_paused for group in groups))


@given(st.dictionaries(st.text(alphabet="ab/.", min_size=1, max_size=6), STATS))
def test_the_numbers_of_a_folder_are_those_of_its_next_level(groups):
    def numbers(node: Node) -> Stats:
        return sum_of([groups[name] for name in node.names]) if isinstance(node, Folder) else groups[node]

    for folder in folders(tree_of(groups)):
        assert numbers(folder) == sum_of([numbers(node) for node in folder.nodes])
