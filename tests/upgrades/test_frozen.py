"""A migration that is on main stays as it is: people have stores that were made with it."""

import hashlib

import pytest

from lab.testing import PROJECT

pytestmark = pytest.mark.once

FOLDER = PROJECT / "tasks_app" / "migrations"
# To change tables, add a migration and its line here. No line ever changes.
FROZEN = {
    "0001_initial.py": "f2e1a1b99ffb0fb72477eba9ab067128a6ad59cc412d7358e1a1d31c1c0c599f",
    "0002_batch_plans.py": "13918e5ba529c377be699e04f241d735f02ca642c57ba15763943f39b3732464",
    "0003_due_times.py": "b564d96940469fcec30bc7b8e1e2ef1ea4eb5bdc520444baabe2721fd9772c57",
}


def test_each_migration_is_as_it_was():
    files = sorted(file for file in FOLDER.glob("*.py") if file.name != "__init__.py")
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files} == FROZEN
