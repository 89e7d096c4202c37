"""Make the screenshots of docs/ with Chromium, from a server with the demo's sample tasks."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

from lab.testing.debian import OPTIONS, chromium

SIZE = {"width": 1366, "height": 860}
PATIENCE_MS = 60_000  # For a page; the machine may be busy.
SETTLED_MS = 3_000  # For charts and live numbers.
GROUP = "mail/incoming"
TASKS = 10_000
PROJECT = "thumbnails"
# Commands that two workers are running.
LINES = [f"sleep 0.{number % 9 + 1}; echo frame {number}" for number in range(300)] + ["ls /no/such/frames"] * 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    checkout: Path
    data: Path
    url: str
    password: str

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """Run a command on the data of this server."""
        program = [sys.executable, "manage.py", *words, "--data", str(self.data)]
        return subprocess.Popen(program, cwd=self.checkout, stdout=subprocess.DEVNULL)

    def failed_task(self) -> int:
        """Return the id of a failed task."""
        token = json.loads((self.data / "server.json").read_bytes())["token"]
        asked = {"q": "state:retrying", "limit": "1"}
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{self.url}/search", params=asked, headers=headers, timeout=60, trust_env=False)
        return int(answer.raise_for_status().json()["tasks"][0]["id"])


def take(checkout: Path, folder: Path) -> Iterator[Path]:
    """Make the screenshots in `folder`, and yield each name. Takes a minute or two."""
    with serving(checkout) as server, at_work(server), signed_in(server) as page:
        for name, address in addresses(server).items():
            page.goto(f"{server.url}{address}", timeout=PATIENCE_MS)
            page.evaluate("theme => document.documentElement.dataset.theme = theme", theme_of(name))
            page.wait_for_timeout(SETTLED_MS)
            page.screenshot(path=folder / name)
            yield folder / name


def addresses(server: Server) -> dict[str, str]:
    return {
        "console.png": "/console/",
        "console-dark.png": "/console/",
        "group.png": f"/console/group?name={GROUP}",
        "failed.png": "/console/failed",
        "task.png": f"/console/task/{server.failed_task()}",
        "commands.png": f"/console/commands/project?project={PROJECT}",
    }


def theme_of(name: str) -> str:
    return "dark" if "dark" in name else "light"


@contextmanager
def serving(checkout: Path) -> Iterator[Server]:
    """Run a server on a separate store with the demo's sample tasks."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        words = ("up", "--port", "0", "--grpc-port", "0", "--commands", "--data", place)
        program = [sys.executable, "manage.py", *words]
        process = stack.enter_context(subprocess.Popen(program, cwd=checkout, stdout=subprocess.PIPE, text=True))
        stack.callback(process.terminate)
        said = "".join(lines_until("ready: ", process.stdout or ()))
        [password] = re.findall(r"with the password (\S+)", said)
        [url] = re.findall(r"ready: (\S+)/console/", said)
        server = Server(checkout=checkout, data=Path(place), url=url, password=password)
        if server.command("demo", "seed", "--tasks", str(TASKS)).wait():
            raise RuntimeError("the store could not be filled")
        yield server


def lines_until(last: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if last in line:
            return


@contextmanager
def at_work(server: Server) -> Iterator[None]:
    """Submit shell commands, and run two workers for them."""
    file = server.data / "lines.txt"
    file.write_text("\n".join(LINES))
    if server.command("commands", "submit", "--file", str(file), "--project", PROJECT).wait():
        raise RuntimeError("the commands could not be submitted")
    workers = [server.command("commands", "worker", PROJECT, "--name", f"render-{number}") for number in (1, 2)]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@contextmanager
def signed_in(server: Server) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=OPTIONS)
        page = browser.new_page(viewport=SIZE, locale="en-US", timezone_id="UTC")  # type: ignore[arg-type]
        page.goto(f"{server.url}/console/login", timeout=PATIENCE_MS)
        page.fill("[name=username]", "admin")
        page.fill("[name=password]", server.password)
        page.press("[name=password]", "Enter")
        # The first password only allows setting a new one.
        own = secrets.token_urlsafe()
        page.fill("[name=new_password1]", own, timeout=PATIENCE_MS)
        page.fill("[name=new_password2]", own)
        page.press("[name=new_password2]", "Enter")
        page.wait_for_url("**/console/", timeout=PATIENCE_MS)
        yield page
        browser.close()
