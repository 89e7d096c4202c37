"""The wheel, for somebody who manages the environment alone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from contextlib import suppress
from email import message_from_bytes
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from taskstore_project import bootstrap
from taskstore_project.testing import PROJECT
from taskstore_project.testing.suite import clean_environment

pytestmark = pytest.mark.once

# Those of this environment are the locked ones of the extra `server`.
PACKAGES = Path(sysconfig.get_path("purelib"))

# Folder in the checkout: folder in the wheel.
FOLDERS = {
    "tasks_app": "tasks_app",
    "taskstore_project": "taskstore_project",
    "templates": "tasks_app/templates",
    "static": "tasks_app/static",
}
SITE = "taskstore_project/documentation/site/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    # From a copy: a build leaves its files where it runs.
    source = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PROJECT / "docs", source / "docs")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md"):
        shutil.copy(PROJECT / name, source)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    [wheel] = (source / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("installed")


@pytest.fixture(scope="module")
def environment(wheel, folder):
    """One in which the wheel is installed, and nothing else."""
    environment = bootstrap.Environment(folder / "environment")
    installer = next(bootstrap.installers(bootstrap.Environment(Path(sys.prefix))))
    installer.create(environment)
    installer.install(environment, "--no-deps", "--no-index", str(wheel))
    return environment


@pytest.fixture(scope="module")
def taskstore(environment, folder):
    """The installed console script, with the packages of `taskstore[server]` or with others."""

    def run(*arguments, packages=PACKAGES):
        variables = {
            **clean_environment(folder),
            "XDG_DATA_HOME": str(folder / "share"),
            "PYTHONPATH": str(packages),
        }
        del variables["TASKSTORE_DATA"]
        program = environment.folder / "bin" / "taskstore"
        return subprocess.run([program, *arguments], env=variables, capture_output=True, text=True, check=False)

    return run


def test_it_holds_the_code_the_templates_and_the_static_files_and_nothing_else(contents):
    expected = {name for here, there in FOLDERS.items() for name in names(here, there)}
    assert {name for name in contents if ".dist-info/" not in name and not name.startswith(SITE)} == expected


def test_it_holds_the_documentation_as_a_site(contents):
    pages = {name.removeprefix(SITE) for name in contents if name.startswith(SITE)}
    assert {"index.html", "search.html", "searchindex.js", "console.html", "_static/css/console.css"} <= pages


def test_a_worker_needs_little(contents):
    [metadata] = [data for name, data in contents.items() if name.endswith(".dist-info/METADATA")]
    required = message_from_bytes(metadata).get_all("Requires-Dist", [])
    assert [line.partition("<")[0] for line in required if "extra ==" not in line] == ["click", "httpx", "rich"]
    assert any(line.lower().startswith("django<") for line in required)


@pytest.fixture(scope="module")
def workers_packages(tmp_path_factory):
    """A folder with what the wheel requires without an extra."""
    folder = tmp_path_factory.mktemp("packages")
    for place in places_of({"click", "httpx", "rich"}):
        (folder / place).symlink_to(PACKAGES / place)
    return folder


def test_what_a_worker_needs_is_enough_for_one(environment, workers_packages):
    code = "from tasks_app.client import Client, Worker; Worker(Client()); import django"
    program = environment.folder / "bin" / "python"
    told = subprocess.run(
        [program, "-c", code], env={"PYTHONPATH": str(workers_packages)}, capture_output=True, text=True, check=False
    )
    assert told.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'django'"


def test_the_installed_commands_run_and_keep_data_with_the_users_other_data(taskstore, folder):
    checked = taskstore("check")
    assert checked.returncode == 0, checked.stderr
    assert (folder / "share" / "taskstore" / "secret_key").exists()


def test_installed_templates_and_static_files_are_found(taskstore):
    static, template = min(names("static", "")), min(names("templates", ""))
    found = taskstore("findstatic", static)
    assert "site-packages/tasks_app/static" in found.stdout, found.stderr
    code = f"from django.template.loader import get_template; print(get_template({template!r}).origin)"
    shown = taskstore("shell", "--no-imports", "--command", code)
    assert "site-packages/tasks_app/templates" in shown.stdout, shown.stderr


def test_without_the_server_its_command_names_the_remedy(taskstore, workers_packages):
    told = taskstore("check", packages=workers_packages)
    assert told.returncode == 2
    assert 'pip install "taskstore[server]"' in told.stderr
    assert told.stderr.count("\n") == 1


def test_without_the_server_the_other_commands_work(taskstore, workers_packages):
    told = taskstore("groups", "--url", "http://127.0.0.1:1", packages=workers_packages)
    assert (told.returncode, told.stderr.count("\n")) == (3, 1), told.stderr
    told = taskstore("--help", packages=workers_packages)
    assert told.returncode == 0
    assert "  history" in told.stdout
    assert 'up, serve, token and others: pip install "taskstore[server]"' in told.stdout


def places_of(packages):
    """What lies in the environment for these packages and all that they require."""
    found, further = {}, set(packages)
    while further:
        name = further.pop()
        with suppress(PackageNotFoundError):  # It is for another Python.
            found[name] = distribution(name)
            required = [line for line in found[name].requires or () if "extra ==" not in line]
            further |= {re.split(r"[^\w.-]", line)[0] for line in required} - found.keys()
    files = [file for each in found.values() for file in each.files or ()]
    return {file.parts[0] for file in files if ".." not in file.parts and "__pycache__" not in file.parts[:1]}


def names(here, there):
    """What the wheel has to hold of a folder of the checkout."""
    files = [path for path in (PROJECT / here).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [os.path.join(there, path.relative_to(PROJECT / here)) for path in files]
