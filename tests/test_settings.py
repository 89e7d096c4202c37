"""What a user sets in the environment, and what comes of nonsense there."""

import os
import stat
import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured
from environs.exceptions import EnvError

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from taskstore_project.__main__ import take_data_folder
from taskstore_project.private_files import read_or_make

pytestmark = pytest.mark.once

SETTINGS = PROJECT / "taskstore_project" / "settings.py"


@pytest.fixture
def setting(tmp_path, monkeypatch):
    """Reads the settings anew, as `manage.py check` does with these variables, and returns what an expression says."""

    def read(expression="None", **variables):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["manage.py", "check"])
            for name in [*os.environ]:
                patch.delenv(name)
            for name, value in {**clean_environment(tmp_path / "data"), **variables}.items():
                patch.setenv(name, value)
            settings = {"__package__": "taskstore_project", "__file__": str(SETTINGS)}
            exec(compile(SETTINGS.read_text(), SETTINGS, "exec"), settings)  # noqa: S102 - our own.
            return eval(expression, settings)  # noqa: S307 - of this file.

    return read


@pytest.fixture
def refusal(setting):
    """The line with which any command refuses these variables."""

    def read(**variables):
        with pytest.raises((EnvError, ImproperlyConfigured)) as refused:
            setting(**variables)
        return str(refused.value)

    return read


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("DATABASE_URL", "mysql://ann:geheim@host/tasks", "postgresql://"),
        ("DATABASE_URL", "postgresql://[host/tasks", "PostgreSQL address"),
        ("DATABASE_URL", "postgresql://host", "name a database"),
        ("DATABASE_PASSWORD_FILE", "/dev/null/password", "/dev/null/password"),
        ("DATABASE_PASSWORD_FILE", "/dev/null", "must not be empty"),
        ("TASKSTORE_DIRECT_DATABASE_URL", "host=geheim", "postgresql://"),
        ("TASKSTORE_DIRECT_DATABASE_URL", "postgresql://host", "name a database"),
        ("TASKSTORE_SECRET_KEY_FILE", "/nowhere/key", "/nowhere/key"),
        ("TASKSTORE_SECRET_KEY_FILE", "/dev/null", "50 characters"),
        ("TASKSTORE_REPLICA_URL", "mysql://ann:geheim@host/tasks", "postgresql://"),
        ("TASKSTORE_REPLICA_URL", "postgresql://host/tasks", "DATABASE_URL"),
        ("TASKSTORE_NEWER_DATABASE", "perhaps", "TASKSTORE_NEWER_DATABASE"),
        ("TASKSTORE_DURABILITY", "perhaps", "strict, opportunistic"),
        ("TASKSTORE_HISTORY", "some", "full, finished, off"),
        ("TASKSTORE_HISTORY_DAYS", "-1", "1"),
        ("TASKSTORE_HISTORY_BYTES", "-1", "0"),
        ("TASKSTORE_AUDIT_DAYS", "0", "1"),
        ("TASKSTORE_RETENTION", "jobs/*=7d mail=soon", '"mail=soon" is not a rule'),
        ("TASKSTORE_COMMAND_LISTS", "*=50/10min/1s a=1", '"a=1" is not a rule'),
        ("TASKSTORE_COMMANDS", "perhaps", "TASKSTORE_COMMANDS"),
        ("TASKSTORE_MAX_DATA_BYTES", "ten", "integer"),
        ("TASKSTORE_TOKEN_RATE", "-1", "0"),
        ("TASKSTORE_DRAIN_SECONDS", "21", "20"),
        ("TASKSTORE_GRPC_MAX_MESSAGE_BYTES", "3000000000", "2147483647"),
        ("TASKSTORE_PUBLIC_URL", "tasks.example.org", "https://"),
        ("TASKSTORE_PUBLIC_URL", "https://ann:geheim@tasks.example.org", "https://"),
        ("TASKSTORE_PUBLIC_URL", "https://tasks.example.org/store", "https://"),
    ],
)
def test_nonsense_is_one_line_that_names_the_variable(refusal, name, value, remedy):
    told = refusal(**{name: value})
    assert "\n" not in told
    assert name in told
    assert remedy in told


def test_a_command_says_it_on_standard_error(tmp_path):
    command = [sys.executable, "manage.py", "check"]
    environment = {**clean_environment(tmp_path / "data"), "TASKSTORE_DURABILITY": "perhaps"}
    told = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == 'taskstore: TASKSTORE_DURABILITY must be one of strict, opportunistic, not "perhaps"\n'


def test_a_refused_database_address_does_not_show_its_password(refusal):
    assert "geheim" not in refusal(DATABASE_URL="mysql://ann:geheim@host/tasks")


@pytest.mark.parametrize("words", [["--data", "elsewhere"], ["--data=elsewhere"]])
def test_the_data_folder_may_be_an_option_of_every_command(monkeypatch, words):
    monkeypatch.setenv("TASKSTORE_DATA", "data")
    assert take_data_folder(["manage.py", "check", *words, "--deploy"]) == ["manage.py", "check", "--deploy"]
    assert os.environ["TASKSTORE_DATA"] == "elsewhere"


def test_the_data_folder_has_to_be_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        take_data_folder(["manage.py", "check", "--data"])
    assert capsys.readouterr().err == "taskstore: --data needs a directory\n"


def test_the_secret_key_stays_the_same(setting, tmp_path):
    made = read_or_make(tmp_path / "data")
    assert read_or_make(tmp_path / "data") == setting("SECRET_KEY") == made != ""
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / "secret_key").stat().st_mode) == 0o600


def test_servers_can_share_a_secret_key(setting, tmp_path):
    (tmp_path / "key").write_text("k" * 50 + "\n")
    assert setting("SECRET_KEY", TASKSTORE_SECRET_KEY_FILE=str(tmp_path / "key")) == "k" * 50


def test_an_unusable_secret_key_is_said(refusal, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secret_key").write_text("short")
    assert "secret_key has no valid key" in refusal()


def test_a_postgresql_address_means_what_it_means_to_libpq(setting):
    url = "postgres://ann:p%40ss@/tasks?host=/run/postgresql&sslmode=require"
    assert setting("DATABASES['default']['PASSWORD']", DATABASE_URL=url) == "p@ss"
    assert setting("DATABASES['default']['HOST']", DATABASE_URL=url) == "/run/postgresql"
    assert setting("DATABASES['default']['OPTIONS']['sslmode']", DATABASE_URL=url) == "require"


def test_the_password_of_postgresql_may_stand_in_a_file(setting, refusal, tmp_path):
    (tmp_path / "password").write_text("p@ss word\n")
    file = {"DATABASE_PASSWORD_FILE": str(tmp_path / "password")}
    assert setting("DATABASES['default']['PASSWORD']", DATABASE_URL="postgres://ann@host/tasks", **file) == "p@ss word"
    told = refusal(DATABASE_URL="postgres://ann:geheim@host/tasks", **file)
    assert told == "DATABASE_URL and DATABASE_PASSWORD_FILE must not both have a password: remove one"
    assert "DATABASE_PASSWORD_FILE needs PostgreSQL: set DATABASE_URL too" in refusal(**file)


def test_it_is_the_password_of_the_direct_address_too(setting, tmp_path):
    (tmp_path / "password").write_text("p@ss word\n")
    variables = {
        "DATABASE_PASSWORD_FILE": str(tmp_path / "password"),
        "DATABASE_URL": "postgres://ann@pooler/tasks",
        "TASKSTORE_DIRECT_DATABASE_URL": "postgres://ann@host/tasks",
    }
    assert setting("TASKSTORE_DIRECT_DATABASE_URL['password']", **variables) == "p@ss word"
    variables["TASKSTORE_DIRECT_DATABASE_URL"] = "postgres://ann:another@host/tasks"
    assert setting("TASKSTORE_DIRECT_DATABASE_URL['password']", **variables) == "another"


def test_behind_an_https_address_cookies_stay_on_https(setting):
    public = {"TASKSTORE_PUBLIC_URL": "https://tasks.example.org/"}
    assert setting("SESSION_COOKIE_SECURE, CSRF_COOKIE_SECURE") == (False, False)
    assert setting("SESSION_COOKIE_SECURE, CSRF_COOKIE_SECURE", **public) == (True, True)
    assert "tasks.example.org" in setting("ALLOWED_HOSTS", **public)
    assert setting("CSRF_TRUSTED_ORIGINS", **public) == ["https://tasks.example.org"]
