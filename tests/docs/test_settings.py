"""docs/settings.md tells every setting, with the default and the range that the server has."""

import re

import pytest

from lab.testing import PROJECT
from taskstore_project import environment
from taskstore_project import settings as own_settings

pytestmark = pytest.mark.once

NO_VARIABLES = {"TASKSTORE_NO_AUTH"}  # An option of `up` alone.
PAGE = (PROJECT / "docs" / "settings.md").read_text()
ROWS = {
    name: (default.replace("`", ""), takes.replace("`", ""))
    for name, default, takes in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
}


def test_every_setting_is_told():
    settings = {name for name in vars(own_settings) if name.startswith("TASKSTORE_")} - NO_VARIABLES
    assert ROWS.keys() == settings | {"DATABASE_URL", "DATABASE_PASSWORD_FILE"}


@pytest.mark.parametrize("name", environment.READINGS)
def test_default_and_range_are_those_of_the_server(name):
    default, takes = ROWS[name]
    reading = environment.READINGS[name]
    assert default == reading.default
    assert takes.removeprefix(takes.partition(", ")[0] + ", ") == reading.takes or takes == reading.takes


def test_the_readme_leads_there_and_names_settings_that_exist():
    readme = (PROJECT / "README.md").read_text()
    assert "(docs/settings.md)" in readme
    assert set(re.findall(r"`(TASKSTORE_[A-Z_]+)`", readme)) <= ROWS.keys() | set(re.findall(r"`(\w+)`", PAGE))
