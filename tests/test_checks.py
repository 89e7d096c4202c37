"""What `manage.py check` says about dangerous settings."""

import subprocess
import sys

import pytest
from django.core.checks import Tags, run_checks
from django.db import connection
from django.test import override_settings
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from lab.testing import PROJECT
from lab.testing.environment import clean_environment

pytestmark = pytest.mark.once

TAGS = [Tags.compatibility, Tags.security]


@pytest.fixture
def complaints():
    """The ids of what the checks of the store find."""

    def run():
        return [found.id for found in run_checks(tags=TAGS) if str(found.id).startswith("tasks_app.")]

    return run


def test_the_settings_of_this_project_are_sound(complaints):
    assert complaints() == []


@pytest.mark.parametrize(("mode", "found"), [("DEFERRED", True), (None, True), ("immediate", False)])
def test_transactions_on_sqlite_have_to_begin_as_writers(complaints, monkeypatch, mode, found):
    monkeypatch.setattr(connection, "vendor", "sqlite")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"transaction_mode": mode})
    assert complaints() == ["tasks_app.E002"] * found


def test_only_two_databases_will_do(complaints, monkeypatch):
    monkeypatch.setattr(connection, "vendor", "oracle")
    assert complaints() == ["tasks_app.E001"]


def test_durability_is_one_of_two(complaints, settings):
    settings.TASKSTORE_DURABILITY = "perhaps"
    assert complaints() == ["tasks_app.E003"]


def test_descriptor_sets_are_read_at_the_start(settings, tmp_path):
    (tmp_path / "text").write_text("message Order {}")
    (tmp_path / "empty").write_bytes(b"")
    lonely = FileDescriptorProto(name="order.proto", dependency=["money.proto"])
    (tmp_path / "lonely").write_bytes(FileDescriptorSet(file=[lonely]).SerializeToString())
    settings.TASKSTORE_DESCRIPTORS = [tmp_path / name for name in ("none", "text", "empty", "lonely")]
    found = [each for each in run_checks(tags=TAGS) if each.id == "tasks_app.E006"]
    said = [each.msg.removeprefix(f"TASKSTORE_DESCRIPTORS: {tmp_path}/") for each in found]
    assert said[:3] == [
        "none can't be read: No such file or directory.",
        "text is not a descriptor set.",
        "empty is not a descriptor set.",
    ]
    assert "money.proto" in said[3]


@pytest.mark.parametrize("insides", [{"DEBUG": True}, {"ALLOWED_HOSTS": ["*"]}])
def test_a_public_server_shows_nothing_of_its_insides(complaints, settings, insides):
    for name, value in insides.items():
        setattr(settings, name, value)
    assert complaints() == []
    settings.TASKSTORE_PUBLIC_URL = "https://tasks.example.org"
    assert complaints() == ["tasks_app.E004"]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://tasks.example.org", True),
        ("http://192.0.2.1:8048", True),
        ("http://localhost:8048", False),
        ("http://127.0.0.1:8048", False),
        ("http://[::1]:8048", False),
        ("https://tasks.example.org", False),
    ],
)
def test_other_machines_should_come_by_https(complaints, settings, url, found):
    settings.TASKSTORE_PUBLIC_URL = url
    assert complaints() == ["tasks_app.W001"] * found


def test_a_server_behind_https_passes_the_check_for_deployment(tmp_path):
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=PROJECT,
        env={**clean_environment(tmp_path / "data"), "TASKSTORE_PUBLIC_URL": "https://tasks.example.org"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("rules", "found"), [("*=50/10min/1s", False), ("*=50", True)])
def test_rules_for_lists_of_commands_have_to_make_sense(complaints, settings, rules, found):
    settings.TASKSTORE_COMMAND_LISTS = rules
    assert complaints() == ["tasks_app.E012"] * found


def test_django_5_takes_its_tasks_from_a_package(complaints, settings, monkeypatch):
    without = [name for name in settings.INSTALLED_APPS if name != "django_tasks"]
    for version, found in (((5, 2, 1), ["tasks_app.W002"]), ((6, 0, 0), [])):
        monkeypatch.setattr("django.VERSION", version)
        with override_settings(INSTALLED_APPS=without):
            assert complaints() == found


def test_the_console_needs_parts_of_django_where_it_is_shown(settings):
    with override_settings(
        INSTALLED_APPS=[name for name in settings.INSTALLED_APPS if name != "django.contrib.messages"]
    ):
        [complaint] = [found for found in run_checks(tags=TAGS) if found.id == "tasks_app.E014"]
        assert complaint.hint == 'Add "django.contrib.messages" to INSTALLED_APPS.'
        settings.ROOT_URLCONF = "tasks_app.rest_api.urls"
        assert not [found for found in run_checks(tags=TAGS) if found.id == "tasks_app.E014"]
