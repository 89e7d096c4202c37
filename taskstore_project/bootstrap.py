"""Create the environment that the project runs in: a venv under the project, filled from requirements/.

Standard library only, and valid syntax for Python 3.7, so that an interpreter that is too old
can search for another one instead of stopping at a syntax error.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, NoReturn

PROJECT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWEST = (3, 14)  # The packages have no builds for later versions yet.

# An interpreter that can import all of these runs the server as it is; the user manages it.
SERVER_MODULES = (
    *("django", "rest_framework", "channels", "daphne", "psycopg", "msgspec", "csp", "axes", "environs"),
    *("grpc", "prometheus_client", "cronsim", "markdown_it"),
)

# The sets in requirements/, as parts of a sentence.
SETS = {"server": "the server", "test": "the tests", "postgres": "the PostgreSQL tests"}

CERTIFICATE_STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")

CANNOT_INSTALL = 2  # The exit code of errors that the user has to correct.


class CannotInstall(Exception):
    """The environment can't be created; the text says what to install or what went wrong."""


def enter_environment() -> None:
    """Continue in the project's environment, creating or updating it first if necessary.

    Returns when the running interpreter is suitable. Otherwise the process is replaced by the
    same command in the environment, or ends with one line and exit code 2.
    """
    try:
        if sys.version_info < OLDEST:
            become(find_interpreter())
        environment = Environment(environment_folder())
        if environment.is_running():
            # Modules can be missing despite the stamp after an upgrade of the system's Python.
            environment.install("server", force=not has_server_modules())
        elif not has_server_modules():
            environment.install("server")
            become(environment.python)
    except CannotInstall as problem:
        say(str(problem))
        sys.exit(CANNOT_INSTALL)


def add_requirements(name: str) -> None:
    """Install the set `name` (a lock file in requirements/) in addition to the installed ones.

    Does not change the system's interpreter: there, the process is replaced by the same command
    in the project's environment.
    """
    is_venv = sys.prefix != sys.base_prefix
    environment = Environment(Path(sys.prefix) if is_venv else environment_folder())
    try:
        environment.install(name)
    except CannotInstall as problem:
        say(str(problem))
        sys.exit(CANNOT_INSTALL)
    if not is_venv:
        become(environment.python)


def environment_folder() -> Path:
    """Return `.venv`, or the directory that TASKSTORE_ENVIRONMENT names: several interpreters can have one each."""
    return PROJECT / os.environ.get("TASKSTORE_ENVIRONMENT", ".venv")


def base_python() -> str:
    """Return the interpreter outside of any venv, which has pip even where the venv has none."""
    return getattr(sys, "_base_executable", sys.executable)


def has_server_modules() -> bool:
    return all(importlib.util.find_spec(module) for module in SERVER_MODULES)


def become(python: Path) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(str(python), [str(python), *sys.argv])  # noqa: S606 - without a shell on purpose.


class Environment:
    """A venv with its installed sets of requirements."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def is_running(self) -> bool:
        return Path(sys.prefix).resolve() == self.folder.resolve()

    def exists(self) -> bool:
        # Follows the link, which dangles after its interpreter was removed.
        return (self.folder / "pyvenv.cfg").exists() and os.access(str(self.python), os.X_OK)

    def has(self, name: str) -> bool:
        stamp = self.stamp(name)
        return self.exists() and stamp.exists() and stamp.read_text() == fingerprint(name)

    def install(self, name: str, force: bool = False) -> None:
        """Install the set unless it is installed already. Never removes another set's packages."""
        if self.has(name) and not force:
            return
        with one_at_a_time():
            if not self.has(name) or force:
                self.make(name)

    def make(self, name: str) -> None:
        started = time.monotonic()
        say(
            f"installing the dependencies of {SETS[name]} into {shown(self.folder)} (once): "
            "5 to 20 s with uv, about a minute with pip ..."
        )
        for installer in installers(self):
            try:
                if not self.exists():
                    installer.create(self)
                installer.install(self, *locked(name))
                break
            except CannotInstall as failure:
                problem = failure
        else:
            raise problem
        self.stamp(name).write_text(fingerprint(name))
        # uv is larger than most packages that it installs, and is fetched again in two seconds.
        shutil.rmtree(str(self.folder / "uv"), ignore_errors=True)
        say(f"done in {time.monotonic() - started:.0f} s")

    def stamp(self, name: str) -> Path:
        return self.folder / f".installed-{name}"


class Uv:
    def __init__(self, command: str) -> None:
        self.command = command

    def create(self, environment: Environment) -> None:
        # The directory may exist already, with uv inside.
        self.run("venv", "--allow-existing", "--python", base_python(), str(environment.folder))

    def install(self, environment: Environment, *what: str) -> None:
        # Not `sync`, which would remove the packages of other sets. Compiled now, as pip does: with
        # PYTHONDONTWRITEBYTECODE, every command would compile all its imports.
        self.run("pip", "install", "--compile-bytecode", "--python", str(environment.python), *what)

    def run(self, *arguments: str) -> None:
        run([self.command, "--quiet", *arguments])


class Pip:
    def create(self, environment: Environment) -> None:
        # Without pip inside: Debian has the module that installs it in a separate package.
        run([base_python(), "-m", "venv", "--without-pip", str(environment.folder)])

    def install(self, environment: Environment, *what: str) -> None:
        # The running interpreter's pip fills the venv; --python also bypasses the system's marker against it.
        pip = [base_python(), "-m", "pip", "--python", str(environment.python)]
        run([*pip, "install", "--quiet", *what])


def installers(environment: Environment) -> Iterator[Uv | Pip]:
    """Yield uv if available, then pip, which may be configured with a mirror that uv does not know.

    Raises CannotInstall with the remedy when there is neither.
    """
    on_path = shutil.which("uv")
    has_pip = works([base_python(), "-m", "pip", "--version"])
    if on_path and works([on_path, "--version"]):
        yield Uv(on_path)
    elif has_pip:
        own = environment.folder / "uv"
        program = str(own / "bin" / "uv")
        if not works([program, "--version"]):
            fetch_uv(own)
        if works([program, "--version"]):
            yield Uv(program)
    else:
        raise CannotInstall(
            f"can't install dependencies: {base_python()} has no pip, and there is no uv; install one of them, "
            "for example with `apt-get install python3-pip`"
        )
    if has_pip:
        yield Pip()


def fetch_uv(folder: Path) -> None:
    """Try to install uv, which is several times as fast as pip, into a separate directory."""
    pip = [base_python(), "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run(
        [*pip, *locked("uv")],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def find_interpreter() -> Path:
    """Return the newest suitable Python. Raises CannotInstall with the remedy when there is none."""
    for python in interpreters():
        return python
    wanted = ".".join(map(str, OLDEST))
    raise CannotInstall(
        f"this is Python {sys.version_info[0]}.{sys.version_info[1]}, and there is no newer one on this machine; "
        f"install Python {wanted} or later, for example with `apt-get install python3`"
    )


def interpreters() -> Iterator[Path]:
    """Yield every suitable Python, newest first. A name on PATH is not enough: pyenv's shims may fail."""
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        for folder in [*os.get_exec_path(), *pyenv_folders()]:
            candidate = Path(folder, f"python3.{minor}")
            if os.access(str(candidate), os.X_OK) and version_of(candidate) == f"3.{minor}":
                yield candidate


def version_of(python: Path) -> str:
    """Return the version as `3.13`; empty when the interpreter does not run."""
    show = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([str(python), "-c", show], env=clean_environment(), capture_output=True, check=False)
    except OSError:
        return ""
    return done.stdout.decode().strip()


def pyenv_folders() -> list[str]:
    """Return the directories of pyenv's interpreters, which its shims hide until they are selected."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return [str(folder) for folder in root.glob("versions/*/bin")]


def requirements(name: str) -> Path:
    return PROJECT / "requirements" / f"{name}.txt"


def locked(name: str) -> list[str]:
    return ["--require-hashes", "-r", str(requirements(name))]


def fingerprint(name: str) -> str:
    return hashlib.sha256(requirements(name).read_bytes()).hexdigest()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep two commands that start together from filling the same directory at once."""
    with open(__file__, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, env=clean_environment(), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotInstall("`{}` failed:\n{}".format(" ".join(command), done.stdout.strip()))


def clean_environment() -> dict[str, str]:
    """Return the environment for uv and pip, without variables that point to another project or interpreter."""
    misleading = ("VIRTUAL_ENV", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "PYTHONHOME", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in misleading}
    kept.update(UV_PYTHON_DOWNLOADS="never", PIP_ROOT_USER_ACTION="ignore", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if any(map(os.path.exists, CERTIFICATE_STORES)):
        kept.setdefault("UV_SYSTEM_CERTS", "1")
    return kept


def shown(folder: Path) -> Path:
    return folder.relative_to(PROJECT) if PROJECT in folder.parents else folder


def say(text: str) -> None:
    # On standard error, as a program may read the output of the command.
    print(f"taskstore: {text}", file=sys.stderr, flush=True)
