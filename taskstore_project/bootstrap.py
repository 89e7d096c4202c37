"""Makes the environment that the project runs in: a venv under the project, filled from requirements/.

Standard library only, and readable for Python 3.7, so that an interpreter which is too old
can look for another one instead of stopping at a syntax error.
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

PROJECT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWEST = (3, 19)  # How far up `interpreters` looks.

# An interpreter that can import all of these runs the server as it is: the user manages it.
SERVER_MODULES = ("django", "rest_framework", "channels", "daphne", "psycopg", "msgspec", "csp", "axes", "environs")

CERTIFICATE_STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")

CANNOT_INSTALL = 2  # The exit code of everything that the user has to put right.


class CannotInstall(Exception):
    """The environment can't be made; the text says what to install or what went wrong."""


def enter_environment():
    """Go on in the project's environment; make or renew it first if need be.

    Returns when the running interpreter will do. Otherwise the process is replaced by the
    same command in the environment, or ends with one line and exit code 2.
    """
    try:
        if sys.version_info < OLDEST:
            become(find_interpreter())
        environment = Environment(environment_folder())
        if environment.is_running():
            environment.install("server")
        elif not has_server_modules():
            environment.install("server")
            become(environment.python)
    except CannotInstall as problem:
        sys.exit(complain(problem))


def add_requirements(name):
    """Install the set `name` (a lock file in requirements/) beside what is there.

    Returns when it is. The system's interpreter is left alone: then the process is replaced by
    the same command in the project's environment.
    """
    is_venv = sys.prefix != sys.base_prefix
    environment = Environment(Path(sys.prefix) if is_venv else environment_folder())
    try:
        environment.install(name)
    except CannotInstall as problem:
        sys.exit(complain(problem))
    if not is_venv:
        become(environment.python)


def environment_folder():
    """`.venv`, or what TASKSTORE_ENVIRONMENT names: several interpreters can have one each."""
    return PROJECT / os.environ.get("TASKSTORE_ENVIRONMENT", ".venv")


def base_python():
    """The interpreter outside of any venv: the one that has pip even where our venv has none."""
    return getattr(sys, "_base_executable", sys.executable)


def has_server_modules():
    return all(importlib.util.find_spec(module) for module in SERVER_MODULES)


def become(python):
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(str(python), [str(python), *sys.argv])


def complain(problem):
    print("taskstore: {}".format(problem), file=sys.stderr)
    return CANNOT_INSTALL


class Environment:
    """A venv, and the sets of requirements that were installed into it."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "bin" / "python"

    def is_running(self):
        return Path(sys.prefix) == self.folder

    def exists(self):
        # Follows the link: an interpreter that was removed since leaves a dangling one.
        return (self.folder / "pyvenv.cfg").exists() and os.access(str(self.python), os.X_OK)

    def has(self, name):
        stamp = self.stamp(name)
        return self.exists() and stamp.exists() and stamp.read_text() == fingerprint(name)

    def install(self, name):
        """Bring the set in, unless it is there already. Never removes another set's packages."""
        if self.has(name):
            return
        with one_at_a_time(name):
            if not self.has(name):
                self.make(name)

    def make(self, name):
        started = time.monotonic()
        installer = find_installer(self)
        say(
            "installing what the {} needs into {} with {}, about {} s once ...",
            name,
            shown(self.folder),
            installer.name,
            installer.seconds,
        )
        if not self.exists():
            installer.create(self)
        installer.install(self, requirements(name))
        self.stamp(name).write_text(fingerprint(name))
        say("done in {:.0f} s", time.monotonic() - started)

    def stamp(self, name):
        return self.folder / ".installed-{}".format(name)


class Uv:
    name = "uv"
    seconds = 15

    def __init__(self, command):
        self.command = str(command)

    def create(self, environment):
        # A folder that holds uv itself is there already, so it is allowed to exist.
        self.run("venv", "--allow-existing", "--python", base_python(), str(environment.folder))

    def install(self, environment, file):
        # Not `sync`: that would remove what another set brought in.
        self.run("pip", "install", "--python", str(environment.python), "--require-hashes", "-r", str(file))

    def run(self, *arguments):
        run([self.command, "--quiet", *arguments])


class Pip:
    name = "pip"
    seconds = 60

    def create(self, environment):
        # Without a pip of its own: Debian keeps the module for that in a package of its own.
        run([base_python(), "-m", "venv", "--without-pip", str(environment.folder)])

    def install(self, environment, file):
        # The running interpreter's pip fills the venv; --python also steps round the system's marker.
        pip = [base_python(), "-m", "pip", "--python", str(environment.python)]
        run([*pip, "install", "--quiet", "--require-hashes", "-r", str(file)])


def find_installer(environment):
    """uv where it can be had, else pip.

    Raises CannotInstall with the remedy when there is neither.
    """
    on_path = shutil.which("uv")
    if on_path and works([on_path, "--version"]):
        return Uv(on_path)
    if not works([base_python(), "-m", "pip", "--version"]):
        raise CannotInstall(
            "can't install anything: {} has no pip and there is no uv; install one of them first, "
            "for example with `apt-get install python3-pip`".format(base_python())
        )
    own = environment.folder / "uv"
    if not (own / "bin" / "uv").exists():
        fetch_uv(own)
    return Uv(own / "bin" / "uv") if works([str(own / "bin" / "uv"), "--version"]) else Pip()


def fetch_uv(folder):
    """Try to put uv into a folder of its own; it is several times as fast as pip."""
    pip = [base_python(), "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run(
        [*pip, "--require-hashes", "-r", str(requirements("uv"))],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def find_interpreter():
    """The newest Python on PATH that is not too old and really runs."""
    for python in interpreters():
        return python
    wanted = ".".join(map(str, OLDEST))
    raise CannotInstall(
        "this is Python {}.{} and there is no newer one on PATH; install Python {} or later, "
        "for example with `apt-get install python3`".format(sys.version_info[0], sys.version_info[1], wanted)
    )


def interpreters():
    """Every Python that will do, newest first. A name on PATH is not enough: pyenv's shims may fail."""
    names = ["python3.{}".format(minor) for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    check = "import sys, venv; sys.exit(sys.version_info < {})".format(OLDEST)
    for name in [*names, "python3"]:
        for folder in [*os.get_exec_path(), *pyenv_folders()]:
            candidate = os.path.join(folder, name)
            if os.access(candidate, os.X_OK) and works([candidate, "-c", check]):
                yield Path(candidate)


def pyenv_folders():
    """Where pyenv keeps the interpreters that its shims hide until they are selected."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return [str(folder) for folder in root.glob("versions/*/bin")]


def requirements(name):
    return PROJECT / "requirements" / "{}.txt".format(name)


def fingerprint(name):
    return hashlib.sha256(requirements(name).read_bytes()).hexdigest()


@contextmanager
def one_at_a_time(name):
    """Two commands started together must not fill the same folder at once."""
    with requirements(name).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def works(command):
    try:
        return subprocess.run(command, env=clean_environment(), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command):
    done = subprocess.run(
        command,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotInstall("`{}` failed:\n{}".format(" ".join(command), done.stdout.strip()))


def clean_environment():
    """The environment for uv and pip, without what would lead them to another project or interpreter."""
    misleading = ("VIRTUAL_ENV", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "PYTHONHOME", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in misleading}
    kept.update(UV_PYTHON_DOWNLOADS="never", PIP_ROOT_USER_ACTION="ignore", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if any(map(os.path.exists, CERTIFICATE_STORES)):
        kept.setdefault("UV_SYSTEM_CERTS", "1")
    return kept


def shown(folder):
    return folder.relative_to(PROJECT) if PROJECT in folder.parents else folder


def say(text, *values):
    # On standard error: `token create` prints the token alone.
    print("taskstore: {}".format(text.format(*values)), file=sys.stderr, flush=True)
