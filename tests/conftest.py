"""What every test has: the settings with a data folder of their own, the browser, the selection by marks."""

import os
import shutil
import tempfile

import django
import hypothesis
import pytest

OWN_DATA_FOLDER = "" if "TASKSTORE_DATA" in os.environ else tempfile.mkdtemp(prefix="taskstore-test-")
if OWN_DATA_FOLDER:
    # pytest was started by hand: the tests must not touch the data of a server that runs here.
    os.environ["TASKSTORE_DATA"] = OWN_DATA_FOLDER
os.environ["DJANGO_SETTINGS_MODULE"] = "taskstore_project.settings"
django.setup()

# Time limits of examples say more about the machine than about the code.
hypothesis.settings.register_profile("full", deadline=None, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=20)
hypothesis.settings.load_profile("full")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("taskstore")
    group.addoption("--without", action="append", default=[], metavar="MARK", help="leave out tests with this mark")
    group.addoption("--only", metavar="MARK", help="run only tests with this mark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only, without = config.option.only, config.option.without

    def is_wanted(item: pytest.Item) -> bool:
        return (not only or bool(item.get_closest_marker(only))) and not any(map(item.get_closest_marker, without))

    wanted = [item for item in items if is_wanted(item)]
    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = wanted


def pytest_unconfigure() -> None:
    if OWN_DATA_FOLDER:
        shutil.rmtree(OWN_DATA_FOLDER, ignore_errors=True)
