"""The image and the composition of docs/deployment: what they start works, without an engine for containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser
from psycopg.conninfo import conninfo_to_dict

from lab.testing import PROJECT
from lab.testing.debian import program
from lab.testing.environment import clean_environment
from tests.behaviour.databases import only_postgresql

from .deployed import DEPLOYMENT, taskstore_in
from .harness import Server, free_port

PUBLIC = {"TASKSTORE_PUBLIC_URL": "http://localhost:8048"}


@pytest.fixture(scope="module")
def image():
    """The image's last stage: what it sets and starts."""
    parsed = DockerfileParser(path=str(DEPLOYMENT / "Dockerfile"))
    return {part["instruction"]: part["value"] for part in parsed.structure}


@pytest.fixture(scope="module")
def composition() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOYMENT / "compose.yaml").read_text())
    return read


class Container:
    """A command of the image, in its environment, with the folder and the port of a test."""

    def __init__(self, image: dict[str, str], folder: Path, port: int) -> None:
        taskstore_in(folder)
        assert "TASKSTORE_DATA=/data" in image["ENV"]
        self.environment = clean_environment(folder / "data") | {
            "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        }
        self._image, self._port = image, port

    def begin(self, command: list[str], **variables: str) -> subprocess.Popen[str]:
        words = [*json.loads(self._image["ENTRYPOINT"]), *command, "--port", str(self._port)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, env=self.environment | variables, **pipes)

    @contextmanager
    def up(self, command: list[str], **variables: str) -> Iterator[Server]:
        server = Server(self.begin(command, **variables))
        try:
            server.wait_until_ready()
            server.url = f"http://127.0.0.1:{self._port}"
            yield server
        finally:
            server.kill()

    def is_healthy(self) -> bool:
        """What the image's own check says."""
        _, _, check = self._image["HEALTHCHECK"].partition("CMD ")
        assert "127.0.0.1:8048" in check
        command = json.loads(check.replace(":8048", f":{self._port}"))
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode == 0


@pytest.fixture
def container(image, tmp_path):
    return Container(image, tmp_path, free_port())


@pytest.mark.once
def test_the_image_serves_and_tells_its_health(container, image):
    command = json.loads(image["CMD"])
    assert not container.is_healthy()
    with container.up(command, **PUBLIC) as server:
        assert container.is_healthy()
        assert server.ask("GET", "/console/login").status_code == 200
        assert server.end() == 0
    assert not container.is_healthy()


@pytest.mark.once
def test_without_a_public_address_the_image_says_what_is_missing(container, image):
    with container.begin(json.loads(image["CMD"])) as server:
        _, complaint = server.communicate()
    assert (server.returncode, complaint.count("\n")) == (2, 1)
    assert "TASKSTORE_PUBLIC_URL" in complaint


@pytest.mark.once
def test_the_image_is_nobody_and_owns_its_volume(image):
    user, _ = image["USER"].split(":")
    assert int(user) > 0
    assert f"--uid {user}" in image["RUN"]
    assert f"--owner {user}" in image["RUN"]
    assert image["RUN"].split()[-1] == image["VOLUME"]


@pytest.mark.once
def test_what_is_sent_to_the_engine_is_enough_for_the_wheel(tmp_path):
    first, *lines = [line for line in ignored() if not line.startswith("#")]
    assert first == "*"
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    for name in kept:
        if (PROJECT / name).is_dir():
            copytree(PROJECT / name, tmp_path / name, ignore=ignore_patterns("__pycache__"))
        else:
            (tmp_path / name).write_bytes((PROJECT / name).read_bytes())
    assert (tmp_path / "requirements" / "server.txt").exists()  # Which it installs.
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


def ignored() -> list[str]:
    return (DEPLOYMENT / "Dockerfile.dockerignore").read_text().split("\n")[:-1]


@pytest.mark.once
def test_neither_data_nor_environments_are_sent():
    kept = [line.removeprefix("!") for line in ignored() if line.startswith("!")]
    assert not [name for name in ("var", ".venv", ".git", "dist") for line in kept if fnmatch(name, line)]


@pytest.mark.once
def test_compose_accepts_the_composition():
    compose = program(("docker-compose",), ("docker-compose",))
    for profile in ([], ["--profile", "proxy"]):
        command = [compose, "--file", str(DEPLOYMENT / "compose.yaml"), *profile, "config", "--quiet"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.once
def test_what_the_composition_names_is_there(composition):
    build = composition["services"]["taskstore"]["build"]
    context = (DEPLOYMENT / build["context"]).resolve()
    assert context == PROJECT
    assert (context / build["dockerfile"]).is_file()
    for service in composition["services"].values():
        for mount in service["volumes"]:
            place = mount.partition(":")[0]
            mounted = place in composition["volumes"] or place == "./certificates"  # Which the user brings.
            assert mounted or (DEPLOYMENT / place).is_file(), place


@only_postgresql
def test_the_composition_serves(container, composition, empty_place, tmp_path):
    service = composition["services"]["taskstore"]
    secret = service["environment"]["DATABASE_PASSWORD_FILE"]
    assert secret == "/run/secrets/" + service["secrets"][0]
    (tmp_path / "database_password").write_text("any\n")
    own = {
        "DATABASE_URL": without_password(empty_place.database_url),
        "DATABASE_PASSWORD_FILE": str(tmp_path / "database_password"),
    }
    assert own.keys() < service["environment"].keys()
    defaults = {
        name: value.partition(":-")[2].rstrip("}") for name, value in service["environment"].items() if ":-" in value
    }
    assert defaults.keys() | own.keys() == service["environment"].keys()
    with container.up(service["command"], **defaults, **own) as server:
        assert container.is_healthy()
        assert server.ask("GET", "/readyz").status_code == 200
        assert server.end() == 0


def without_password(url: str) -> str:
    # The server of the tests trusts everybody on this machine.
    password = conninfo_to_dict(url).get("password")
    return url.replace(f":{password}@", "@") if password else url
