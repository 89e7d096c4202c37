"""The wheel, and projects in which it is installed."""

import subprocess
import sys
import zipfile

import pytest

from lab.testing import PROJECT

from .project import Project


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The folder of the wheel's packages."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    [wheel] = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def made(installed, tmp_path_factory, django_db_setup, django_db_blocker):
    """A project without tables."""
    with django_db_blocker.unblock():
        project = Project(tmp_path_factory.mktemp("foreign") / "project", installed)
    yield project
    with django_db_blocker.unblock():
        project.remove()


@pytest.fixture(scope="module")
def project(made):
    made.manage("migrate", "--verbosity", "0")
    return made
