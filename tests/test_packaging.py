"""The source archive and the wheel, for somebody who manages the environment alone."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from subprocess import PIPE
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from packaging.requirements import Requirement

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from taskstore_project import bootstrap
from tests.packages import PACKAGES, places_of
from tests.served import free_port
from tests.server.harness import Server

pytestmark = [pytest.mark.once, pytest.mark.servers]

# Folder in the checkout: folder in the wheel.
FOLDERS = {
    "taskstore": "taskstore",
    "tasks_app": "tasks_app",
    "taskstore_project": "taskstore_project",
    "templates": "tasks_app/templates",
    "static": "tasks_app/static/tasks_app",
    "docs": "taskstore_project/documentation/pages/docs",
}
# Pages beside docs/.
PAGES = {f"taskstore_project/documentation/pages/{name}" for name in ("README.md", "CHANGELOG.md")}

JOB = """
from taskstore import job


@job
def count_words(text):
    return len(text.split())
"""

# What a distributor finds beside the code; nothing else of a checkout.
SOURCES = (*FOLDERS, "lab", "requirements", "tests", ".ci")
FILES = ("CHANGELOG.md", "LICENSE", "README.md", "manage.py", "pyproject.toml")
BY_THE_BUILD = {"PKG-INFO", ".gitignore"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The source archive of the checkout."""
    folder = tmp_path_factory.mktemp("archive")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    built = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    [made] = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def source(archive, tmp_path_factory):
    """The unpacked source archive."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as packed:
        # Not by an argument, which the Python 3.11.2 of Debian 12 does not know.
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)  # noqa: S202 - the archive is our own
    return folder / archive.name.removesuffix(".tar.gz")


class CleanEnvironment:
    """An environment that holds pip and nothing else, and lets nothing in from outside."""

    def __init__(self, folder):
        self.environment = bootstrap.Environment(folder)
        self.variables = bootstrap.clean_environment() | {"HOME": str(folder)}
        # Debian's Python comes without the module that would put pip there.
        installer = next(bootstrap.installers(bootstrap.Environment(Path(sys.prefix))))
        installer.create(self.environment)
        installer.install(self.environment, "pip")

    def pip(self, *arguments):
        """Run pip, which builds a wheel in another new environment, as it does for everybody."""
        command = [str(self.environment.python), "-m", "pip", *map(str, arguments)]
        done = subprocess.run(command, env=self.variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def wheel(self, what, folder):
        self.pip("wheel", "--no-deps", "--wheel-dir", folder, what)
        [made] = folder.iterdir()
        return made


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return CleanEnvironment(tmp_path_factory.mktemp("clean") / "environment")


@pytest.fixture(scope="module")
def wheel(clean, archive, tmp_path_factory):
    # Of the archive, not of the checkout: so both are known to be whole.
    return clean.wheel(archive, tmp_path_factory.mktemp("wheel"))


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
def variables(folder):
    """Those of somebody who has set nothing but where data lies."""
    clean = {**clean_environment(folder), "XDG_DATA_HOME": str(folder / "share")}
    del clean["TASKSTORE_DATA"]
    return clean


@pytest.fixture(scope="module")
def program(environment):
    return environment.folder / "bin" / "taskstore"


@pytest.fixture(scope="module")
def taskstore(program, variables):
    """The installed console script, with the packages of `taskstore[server]` or with others."""

    def run(*arguments, packages=PACKAGES, **more):
        environment = {**variables, "PYTHONPATH": str(packages), **more}
        return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def grpc_port():
    return str(free_port())


@pytest.fixture
def server(program, variables, grpc_port):
    """The installed server."""
    command = [program, "up", "--port", "0", "--grpc-port", grpc_port]
    environment = {**variables, "PYTHONPATH": str(PACKAGES)}
    server = Server(subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True))
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()


def test_the_source_has_all_that_builds_tests_and_explains_it(source):
    expected = {name for folder in SOURCES for name in names(folder, folder)}
    here = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert here - BY_THE_BUILD == expected | set(FILES)


def test_the_wheel_holds_the_code_the_templates_the_static_files_and_the_documentation(contents):
    expected = {name for here, there in FOLDERS.items() for name in names(here, there)} | PAGES
    assert {name for name in contents if ".dist-info/" not in name} == expected


def test_no_file_of_it_stands_for_one_of_a_project(contents):
    """Django looks for templates and static files in all apps, and takes the first that has the name."""
    ours = re.compile(r"tasks_app/(templates/(tasks_app|taskstore_project|admin/tasks_app)|static/tasks_app)/")
    files = [name for name in contents if name.startswith(("tasks_app/templates/", "tasks_app/static/"))]
    assert [name for name in files if not ours.match(name)] == []


def test_pip_makes_the_same_wheel_of_a_checkout(clean, contents, tmp_path):
    with zipfile.ZipFile(clean.wheel(PROJECT, tmp_path)) as made:
        assert set(made.namelist()) == set(contents)


def test_a_worker_needs_little(contents):
    [metadata] = [data for name, data in contents.items() if name.endswith(".dist-info/METADATA")]
    required = message_from_bytes(metadata).get_all("Requires-Dist", [])
    assert [line.partition("<")[0] for line in required if "extra ==" not in line] == [
        "click",
        "httpx",
        "msgspec",
        "rich",
    ]
    assert any(line.lower().startswith("django<") for line in required)


def test_each_python_may_have_the_lts_of_django_and_its_tasks(contents):
    [metadata] = [data for name, data in contents.items() if name.endswith(".dist-info/METADATA")]
    required = [Requirement(line) for line in message_from_bytes(metadata).get_all("Requires-Dist", [])]
    django, tasks = ([each for each in required if each.name.lower() == name] for name in ("django", "django-tasks"))
    for python in ("3.11", "3.12", "3.13", "3.14"):
        here = {"python_version": python, "python_full_version": f"{python}.0", "extra": "server"}
        [asked] = [each for each in django if each.marker and each.marker.evaluate(here)]
        assert all(asked.specifier.contains(version) for version in ("5.2.1", "6.0.1", "6.1.1"))
        # Without Django 6 the tasks are this package's.
        assert any(each.marker and each.marker.evaluate(here) for each in tasks)


def test_programs_see_the_types_of_the_client(environment, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("from taskstore import NewTask\nreveal_type(NewTask(group='mail').group)\n")
    # From a folder without our configuration, in which the checkout's own types would be found.
    command = [sys.executable, "-m", "mypy", "--python-executable", str(environment.python), program.name]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 'Revealed type is "str"' in told.stdout, told.stdout


@pytest.fixture(scope="module")
def workers_packages(tmp_path_factory):
    """A folder with what the wheel requires without an extra."""
    folder = tmp_path_factory.mktemp("packages")
    for place in places_of({"click", "httpx", "msgspec", "rich"}):
        (folder / place).symlink_to(PACKAGES / place)
    return folder


def test_what_a_worker_needs_is_enough_for_one(environment, workers_packages):
    code = "from taskstore import Client, Worker; Worker(Client()); import django"
    program = environment.folder / "bin" / "python"
    told = subprocess.run(
        [program, "-c", code], env={"PYTHONPATH": str(workers_packages)}, capture_output=True, text=True, check=False
    )
    assert told.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'django'"


def test_where_only_the_client_is_installed_help_and_mistakes_tell_so(taskstore, workers_packages):
    told = taskstore("--help", packages=workers_packages)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("Usage: taskstore ")
    assert re.search(r"^  claim  +Claim", told.stdout, re.MULTILINE)
    assert not re.search(r"^  up ", told.stdout, re.MULTILINE)
    assert 'pip install "taskstore[server]" adds: up, serve, token' in told.stdout
    told = taskstore("adn", packages=workers_packages)
    why = 'taskstore: unknown command: adn. Did you mean "add"? `taskstore --help` lists all commands\n'
    assert (told.returncode, told.stderr) == (2, why)
    told = taskstore("--help")
    assert re.search(r"^  up  +Run the server", told.stdout, re.MULTILINE)
    assert "migrate" not in told.stdout


def test_the_installed_commands_run_and_keep_data_with_the_users_other_data(taskstore, folder):
    for command in ("check", "migrate"):
        done = taskstore(command)
        assert done.returncode == 0, done.stderr
    assert (folder / "share" / "taskstore" / "taskstore.sqlite3").exists()


def test_installed_templates_and_static_files_are_found(taskstore):
    static, template = min(names("static", "tasks_app")), min(names("templates", ""))
    found = taskstore("findstatic", static)
    assert "site-packages/tasks_app/static" in found.stdout, found.stderr
    code = f"from django.template.loader import get_template; print(get_template({template!r}).origin)"
    shown = taskstore("shell", "--no-imports", "--command", code)
    assert "site-packages/tasks_app/templates" in shown.stdout, shown.stderr


def test_the_installed_server_has_its_pages_and_files_and_speaks_grpc(server, grpc_port):
    page = server.ask("GET", "/console/login")
    assert page.status_code == 200
    pages = page.text + server.ask("GET", "/docs/").text
    for file in re.findall(r'(?:href|src)="(/static/[^"]+)"', pages):
        assert server.ask("GET", file).status_code == 200, file
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        health = stub.Check(HealthCheckRequest(), timeout=60, wait_for_ready=True)
    assert health.status == HealthCheckResponse.SERVING


def test_a_worker_without_the_server_does_a_job(server, program, variables, taskstore, workers_packages, tmp_path):
    (tmp_path / "reports.py").write_text(JOB)
    token = json.loads((Path(variables["XDG_DATA_HOME"]) / "taskstore" / "server.json").read_bytes())["token"]
    own = {"PYTHONPATH": f"{workers_packages}:{tmp_path}", "TASKSTORE_URL": server.url, "TASKSTORE_TOKEN": token}
    with subprocess.Popen([program, "work", "reports"], env={**variables, **own}) as worker:
        arguments = ("job", "enqueue", "reports.count_words", "to be or not", "--wait")
        done = taskstore(*arguments, packages=workers_packages, TASKSTORE_URL=server.url, TASKSTORE_TOKEN=token)
        worker.terminate()
    assert done.stdout.strip() == "4", done.stderr


def test_without_the_server_its_command_names_the_remedy(taskstore, workers_packages):
    told = taskstore("up", packages=workers_packages)
    assert told.returncode == 2
    assert 'pip install "taskstore[server]"' in told.stderr
    assert told.stderr.count("\n") == 1


def test_pip_installs_the_wheel_and_its_command_helps(clean, wheel):
    clean.pip("install", wheel)
    told = clean_run(clean, "--help")
    assert told.returncode == 0, told.stderr
    assert 'pip install "taskstore[server]" adds: up, serve, token' in told.stdout


@pytest.fixture(scope="module")
def complete(clean, wheel):
    """The clean environment with the server: the wheel, and the newest packages that it allows."""
    # What is compiled here takes half of the time, and little of it is used.
    clean.pip("install", "--no-compile", f"{wheel}[server]")
    return clean


def test_pip_installs_the_server_without_a_conflict(complete):
    complete.pip("check")


def test_what_pip_installed_serves(complete, tmp_path):
    command = [complete.environment.folder / "bin" / "taskstore", "up", "--port", "0", "--grpc-port", "0"]
    variables = complete.variables | {"TASKSTORE_DATA": str(tmp_path)}
    for name in ("DATABASE_URL", "TASKSTORE_ENVIRONMENT", "DJANGO_SETTINGS_MODULE"):
        variables.pop(name, None)
    server = Server(subprocess.Popen(command, env=variables, cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True))
    try:
        server.wait_until_ready()
        assert server.ask("GET", "/healthz").status_code == 200
        assert server.ask("GET", "/console/login").status_code == 200
        for path in ("", "client/", "find/?q=lease", "files/docs/console.png", "files/tasks_app/writer/writer.py"):
            assert server.ask("GET", f"/docs/{path}").status_code == 200, path
    finally:
        server.kill()


def clean_run(clean, *arguments):
    command = [clean.environment.folder / "bin" / "taskstore", *arguments]
    return subprocess.run(command, env=clean.variables, capture_output=True, text=True, check=False)


def names(here, there):
    """What the wheel has to hold of a folder of the checkout."""
    files = [path for path in (PROJECT / here).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [os.path.join(there, path.relative_to(PROJECT / here)) for path in files]
