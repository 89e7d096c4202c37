"""A place for databases, in which nothing works any more at the end."""

import shutil
import tempfile
from pathlib import Path

import pytest

from lab.cluster.programs import at_work_in


@pytest.fixture
def disk():
    # Not pytest's own folder: PostgreSQL may run as another user, who has to reach it.
    folder = Path(tempfile.mkdtemp(prefix="taskstore-test-cluster-"))
    folder.chmod(0o711)
    yield folder
    left = at_work_in(folder)
    shutil.rmtree(folder)
    assert left == []
