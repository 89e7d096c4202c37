"""The environment that manage.py makes where Django is not installed. Real installations, in a copy of the tree."""

import ast
import os
import shutil
import subprocess
import sys

import pytest

from lab.testing import PROJECT
from taskstore_project import bootstrap, program

pytestmark = pytest.mark.once

# How pip reaches the packages from here is this machine's business.
NETWORK = ("PIP_", "SSL_", "HTTP_", "HTTPS_", "http_", "https_", "no_proxy", "NO_PROXY")


@pytest.fixture
def copy(tmp_path):
    """A copy of what a start needs, without an environment."""
    copy = tmp_path / "project"
    for name in ("taskstore", "tasks_app", "taskstore_project", "requirements"):
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("manage.py", "pyproject.toml"):
        shutil.copy(PROJECT / name, copy)
    return copy


@pytest.fixture
def start(copy, tmp_path):
    """Start something in the copy with the bare Python, an empty home, and no uv."""
    environment = {name: value for name, value in os.environ.items() if name.startswith(NETWORK)}
    environment |= {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}

    def run(*arguments, **variables):
        return subprocess.run(
            [bootstrap.base_python(), *arguments],
            cwd=copy,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_first_start_makes_the_environment_and_the_second_is_immediate(start, copy):
    first = start("manage.py", "version")
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"taskstore {program.version()}\n"
    assert list(copy.glob(".venv/lib/*/site-packages/django/__init__.py"))
    assert first.stderr.startswith("taskstore: installing the dependencies of the server into .venv (once):")
    assert first.stderr.count("\n") == 2

    # Without pip, uv or a network there is nothing that it could do but start.
    second = start("manage.py", "version", PATH="/nowhere", PIP_NO_INDEX="1")
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")

    # Changed requirements are a reason to look again.
    locked = copy / "requirements" / "server.txt"
    locked.write_text(locked.read_text() + "# Changed.\n")
    third = start("manage.py", "version", PATH="/nowhere", PIP_NO_INDEX="1")
    assert third.stderr.startswith("taskstore: installing")


def test_pip_does_it_where_uv_can_not_be_had(start, copy):
    code = """
from taskstore_project import bootstrap
environment = bootstrap.Environment(bootstrap.environment_folder())
bootstrap.Pip().create(environment)
bootstrap.Pip().install(environment, *bootstrap.locked("uv"))
"""
    done = start("-c", code)
    assert done.returncode == 0, done.stderr
    assert (copy / ".venv" / "bin" / "uv").exists()


def test_another_set_is_added_and_nothing_removed(start, copy):
    for name in ("uv", "tiny"):
        code = f"""
from taskstore_project import bootstrap
bootstrap.SETS[{name!r}] = "the test"
bootstrap.Environment(bootstrap.environment_folder()).install({name!r})
"""
        # One package of the server's, to have a second set that is quickly there.
        tiny = (PROJECT / "requirements" / "server.txt").read_text().partition("\nsqlparse==")[2]
        (copy / "requirements" / "tiny.txt").write_text("sqlparse==" + tiny.partition("\nt")[0])
        done = start("-c", code)
        assert done.returncode == 0, done.stderr
    assert list(copy.glob(".venv/lib/*/site-packages/uv"))
    assert list(copy.glob(".venv/lib/*/site-packages/sqlparse"))


def test_an_interpreter_that_does_not_run_is_passed_over(tmp_path, monkeypatch):
    shim(tmp_path / "a", "python3.14", "exit 127")
    shim(tmp_path / "b", "python3.12", "echo 3.12")
    monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    monkeypatch.setattr(bootstrap, "pyenv_folders", list)
    assert bootstrap.find_interpreter() == tmp_path / "b" / "python3.12"


def test_no_interpreter_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(bootstrap, "pyenv_folders", list)
    with pytest.raises(bootstrap.CannotInstall, match=r"install Python 3\.11 or later"):
        bootstrap.find_interpreter()


def test_neither_pip_nor_uv_is_told_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(bootstrap, "base_python", lambda: "/nowhere/python3")
    environment = bootstrap.Environment(tmp_path)
    with pytest.raises(bootstrap.CannotInstall, match="apt-get install python3-pip"):
        list(bootstrap.installers(environment))


def test_an_installation_that_fails_shows_why(start, copy):
    (copy / "requirements" / "server.txt").write_text("taskstore-is-not-there==1 --hash=sha256:00\n")
    failed = start("manage.py", "version", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert failed.returncode == 2
    assert "taskstore-is-not-there" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_it_needs_the_standard_library_alone(copy):
    code = f"import sys; sys.path.insert(0, {str(copy)!r}); import taskstore_project.bootstrap"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


@pytest.mark.parametrize("name", ["manage.py", "taskstore_project/__init__.py", "taskstore_project/bootstrap.py"])
def test_an_old_interpreter_can_read_it(name):
    ast.parse((PROJECT / name).read_text(), feature_version=(3, 7))


def shim(folder, name, line):
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{line}\n")
    (folder / name).chmod(0o755)
