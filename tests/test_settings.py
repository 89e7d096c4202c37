"""What a user sets in the environment, and what comes of nonsense there."""

import stat
import subprocess
import sys
from functools import partial

import pytest

from lab.testing import PROJECT
from lab.testing.suite import clean_environment

pytestmark = pytest.mark.once


@pytest.fixture
def python(tmp_path):
    def run(*arguments, **variables):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=PROJECT,
            env={**clean_environment(tmp_path / "data"), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def manage(python):
    return partial(python, "manage.py")


@pytest.fixture
def setting(python):
    def read(expression, **variables):
        shown = python("-c", f"from taskstore_project.settings import *; print({expression})", **variables)
        assert shown.returncode == 0, shown.stderr
        return shown.stdout.strip()

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
        ("TASKSTORE_DATA", "/dev/null/data", "/dev/null/data"),
        ("TASKSTORE_DURABILITY", "perhaps", "strict, opportunistic"),
        ("TASKSTORE_HISTORY", "some", "full, finished, off"),
        ("TASKSTORE_HISTORY_DAYS", "-1", "1"),
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
def test_nonsense_is_one_line_that_names_the_variable(manage, name, value, remedy):
    told = manage("check", **{name: value})
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1
    assert name in told.stderr
    assert remedy in told.stderr


def test_files_stand_one_after_the_other_as_in_path(setting, tmp_path):
    read = setting("*TASKSTORE_DESCRIPTORS", TASKSTORE_DESCRIPTORS=f"{tmp_path}/a.pb:{tmp_path}/b.pb:")
    assert read == f"{tmp_path}/a.pb {tmp_path}/b.pb"
    assert setting("TASKSTORE_DESCRIPTORS") == "[]"


def test_a_refused_database_address_does_not_show_its_password(manage):
    assert "geheim" not in manage("check", DATABASE_URL="mysql://ann:geheim@host/tasks").stderr


def test_the_data_folder_is_for_its_owner_alone(manage, tmp_path):
    assert manage("check", "--data", str(tmp_path / "elsewhere")).returncode == 0
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "elsewhere" / "secret_key").stat().st_mode) == 0o600
    assert not (tmp_path / "data").exists()


def test_the_data_folder_comes_after_an_equals_sign_too(manage, tmp_path):
    assert manage("check", f"--data={tmp_path / 'elsewhere'}").returncode == 0
    assert (tmp_path / "elsewhere" / "secret_key").exists()


def test_the_data_folder_has_to_be_named(manage):
    told = manage("check", "--data")
    assert (told.returncode, told.stderr) == (2, "taskstore: --data needs a directory\n")


def test_the_secret_key_stays_the_same(setting):
    assert setting("SECRET_KEY") == setting("SECRET_KEY") != ""


def test_servers_can_share_a_secret_key(setting, tmp_path):
    (tmp_path / "key").write_text("k" * 50 + "\n")
    assert setting("SECRET_KEY", TASKSTORE_SECRET_KEY_FILE=str(tmp_path / "key")) == "k" * 50


def test_an_unusable_secret_key_is_said(manage, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secret_key").write_text("short")
    told = manage("check")
    assert told.returncode == 2
    assert "secret_key has no valid key" in told.stderr


def test_sqlite_waits_for_the_disk_unless_told_otherwise(setting):
    expression = "DATABASES['default']['OPTIONS']['init_command']"
    assert "synchronous = FULL" in setting(expression)
    assert "synchronous = NORMAL" in setting(expression, TASKSTORE_DURABILITY="opportunistic")


def test_a_postgresql_address_means_what_it_means_to_libpq(setting):
    url = "postgres://ann:p%40ss@/tasks?host=/run/postgresql&sslmode=require"
    assert setting("DATABASES['default']['PASSWORD']", DATABASE_URL=url) == "p@ss"
    assert setting("DATABASES['default']['HOST']", DATABASE_URL=url) == "/run/postgresql"
    assert setting("DATABASES['default']['OPTIONS']['sslmode']", DATABASE_URL=url) == "require"


def test_the_password_of_postgresql_may_stand_in_a_file(setting, manage, tmp_path):
    (tmp_path / "password").write_text("p@ss word\n")
    file = {"DATABASE_PASSWORD_FILE": str(tmp_path / "password")}
    assert setting("DATABASES['default']['PASSWORD']", DATABASE_URL="postgres://ann@host/tasks", **file) == "p@ss word"
    told = manage("check", DATABASE_URL="postgres://ann:geheim@host/tasks", **file)
    assert (told.returncode, told.stderr) == (
        2,
        "taskstore: DATABASE_URL and DATABASE_PASSWORD_FILE must not both have a password: remove one\n",
    )
    told = manage("check", **file)
    assert "DATABASE_PASSWORD_FILE needs PostgreSQL: set DATABASE_URL too" in told.stderr


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
    assert setting("SESSION_COOKIE_SECURE, CSRF_COOKIE_SECURE") == "False False"
    assert setting("SESSION_COOKIE_SECURE, CSRF_COOKIE_SECURE", **public) == "True True"
    assert "tasks.example.org" in setting("ALLOWED_HOSTS", **public)
    assert setting("CSRF_TRUSTED_ORIGINS", **public) == "['https://tasks.example.org']"
