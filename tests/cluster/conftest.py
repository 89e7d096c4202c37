"""A place for databases, in which nothing works any more at the end."""

import pytest

from lab.cluster.nodes import at_work_in


@pytest.fixture
def disk(disk):
    yield disk
    assert at_work_in(disk) == []
