"""A cluster of real processes on this machine, in a temporary folder, which ends with the `with` block."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Lock, Thread
from typing import Protocol, Self

import httpx
import psycopg
from psycopg import sql

from lab.chaos.processes import StoreServer
from lab.chaos.stage import make_store, token_of, wait_until
from lab.testing import CannotTry

from . import configuration
from .plan import DATABASE, HOST, DatabaseNode, EtcdMember, Plan, WebNode
from .programs import Program, Programs, kill_all_in

PATIENCE_S = 5.0  # For the response of a local program.
CONNECT_S = 5
SYNCHRONOUS = "sync"
STANDBYS = "SELECT application_name, sync_state FROM pg_stat_replication WHERE state = 'streaming'"

RESTART_S = 0.1  # systemd's own RestartSec.


class Cluster:
    def __init__(self, plan: Plan, parent: Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        # The real path, because processes are found by it.
        self.folder = Path(mkdtemp(prefix="taskstore-cluster-", dir=parent)).resolve()
        # The programs' user must be able to pass through to its folders, which others can't read.
        self.folder.chmod(0o711)
        self._say = say
        self.programs = Programs()
        self._stack = ExitStack()
        self.supervisor = Supervisor()
        self.etcd: list[Program] = []
        self.databases: dict[str, Program] = {}  # By name; each with its Patroni.
        self.nodes: list[StoreServer] = []

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.enter_context(self.supervisor)
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            self._stack.close()

    # ---- Start

    def start(self) -> None:
        """Start everything but the web nodes. Raises CannotTry."""
        self.etcd = [self._begin(self._etcd(member)) for member in self.plan.etcd]
        self._wait(self.etcd_is_healthy, f"etcd has a leader (members: {len(self.etcd)})")
        self.databases = {node.name: self._begin(self._database(node)) for node in self.plan.databases}
        self.haproxy = self._begin(self._haproxy())
        self._wait(self.is_writable, "PostgreSQL has a primary")
        self._wait(self.is_whole, f"its standbys follow ({len(self.databases) - 1}), one synchronously")
        self.pgbouncer = self._begin(self._pgbouncer())
        self._make_store()

    def add_node(self) -> None:
        """Start another web node and wait until it serves."""
        node = self.plan.nodes[len(self.nodes)]
        server = self._server(node)
        self.supervisor.begin(server)
        self.nodes.append(server)
        self._wait(server.is_ready, f"{node.name} is ready at {server.url}")

    def _begin(self, program: Program) -> Program:
        self.supervisor.begin(program)
        return program

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what)
        self._say(what)

    def new_folder(self, name: str) -> Path:
        """Create a folder that no other user can enter."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        return folder

    def _program(self, name: str, *command: str) -> Program:
        return Program(command, self.new_folder(name), is_unprivileged=True)

    def _etcd(self, member: EtcdMember) -> Program:
        return self._program(member.name, *configuration.etcd_command(self.programs.etcd, member, self.plan))

    def _database(self, node: DatabaseNode) -> Program:
        program = self._program(node.name, self.programs.patroni, "patroni.json")
        text = configuration.patroni(node, self.plan, program.folder, self.programs.postgresql)
        program.write("patroni.json", text)
        return program

    def _haproxy(self) -> Program:
        program = self._program("haproxy", self.programs.haproxy, "-db", "-f", "haproxy.cfg")
        program.write("haproxy.cfg", configuration.haproxy(self.plan))
        return program

    def _pgbouncer(self) -> Program:
        program = self._program("pgbouncer", self.programs.pgbouncer, "pgbouncer.ini")
        program.write("pgbouncer.ini", configuration.pgbouncer(self.plan))
        program.write("users.txt", configuration.pgbouncer_users(self.plan))
        return program

    def _server(self, node: WebNode) -> StoreServer:
        # haproxy passes the client's address on.
        variables = {"DATABASE_URL": self.plan.pooled_url, "TASKSTORE_PROXIES": "1"}
        return StoreServer(("serve", "--workers", "1"), self.folder / node.name, variables, port=node.port)

    def _make_store(self) -> None:
        with psycopg.connect(self.plan.superuser_url, autocommit=True) as connection:
            name, password = sql.Identifier(DATABASE), sql.Literal(self.plan.passwords.store)
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, password))
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, name))
        folder = self.new_folder("store")
        make_store(folder, self.plan.direct_url)
        self.token = token_of(folder)
        self._say("the store has been created")

    def kill_postgresql(self, name: str) -> None:
        """Kill only PostgreSQL, not its Patroni."""
        kill_all_in(self.databases[name].folder / "data")

    # ---- State

    def leader(self) -> str:
        """Return the name of the primary database; empty if there is none."""
        return next((node.name for node in self.plan.databases if _answers(node.patroni_port, "/primary")), "")

    def standbys(self) -> dict[str, str]:
        """Return the standbys that follow the primary, by name: `sync` or `async`."""
        with psycopg.connect(self.plan.superuser_url, connect_timeout=CONNECT_S) as connection:
            return dict(connection.execute(STANDBYS).fetchall())

    def synchronous(self) -> str:
        """Return the name of the synchronous standby. Raises CannotTry if there is none."""
        found = [name for name, treated in self.standbys().items() if treated == SYNCHRONOUS]
        if not found:
            raise CannotTry("no standby is synchronous")
        return found[0]

    def is_whole(self) -> bool:
        """Whether all databases are there, one of the standbys is synchronous, and Patroni knows which.

        It promotes no other one, and learns of it some seconds after PostgreSQL has begun with it.
        """
        with suppress(psycopg.OperationalError):
            standbys = self.standbys()
            is_there = len(standbys) == len(self.databases) - 1 and SYNCHRONOUS in standbys.values()
            return is_there and any(_answers(node.patroni_port, "/sync") for node in self.plan.databases)
        return False

    def is_standby(self, name: str) -> bool:
        """Whether this database works as one, as its Patroni says, which began with it."""
        return any(node.name == name and _answers(node.patroni_port, "/replica") for node in self.plan.databases)

    def is_writable(self) -> bool:
        """Whether haproxy connects to a primary."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.plan.superuser_url, connect_timeout=CONNECT_S):
            return True
        return False

    def is_ready(self) -> bool:
        """Whether the store can be used through haproxy."""
        return _answers(self.plan.web_port, "/readyz")

    def addresses(self) -> dict[str, str]:
        """Yield the addresses and passwords to inspect the cluster."""
        databases = {f"{node.name} (Patroni)": _url(node.patroni_port) for node in self.plan.databases}
        return {
            "store": self.plan.url,
            "token": self.token,
            **{node.name: _url(node.port) for node in self.plan.nodes},
            "primary": self.plan.direct_url,
            "primary through pgbouncer": self.plan.pooled_url,
            **databases,
            **{member.name: _url(member.port) for member in self.plan.etcd},
            "folder": str(self.folder),
        }

    def last_words(self) -> dict[str, str]:
        """Return the last line of each program's log, by name."""
        logs = [*self.folder.glob("*/log"), *self.folder.glob("*.log")]
        names = [log.parent.name if log.name == "log" else log.stem for log in logs]
        return {name: last_line(log) for name, log in sorted(zip(names, logs, strict=True))}

    def keep_logs(self) -> Path:
        """Copy the logs and the clients' records to a permanent folder, and return it."""
        kept = Path(mkdtemp(prefix="taskstore-cluster-logs-", dir=self.folder.parent))
        notes = [*self.folder.glob("clients/*"), *self.folder.glob("*/data/log/*")]
        for file in [*self.folder.glob("*/log"), *self.folder.glob("*.log"), *notes]:
            if file.is_file():
                copy = kept / file.relative_to(self.folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
        return kept

    def etcd_is_healthy(self) -> bool:
        """Whether all members are present and agree on a leader."""
        return all(_answers(member.port, "/health") for member in self.plan.etcd)


def last_line(log: Path) -> str:
    return log.read_text(errors="replace").strip().rpartition("\n")[2]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C, so that a second one does not leave processes behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _answers(port: int, path: str) -> bool:
    with suppress(httpx.HTTPError):
        return _get(port, path).status_code == 200
    return False


def _get(port: int, path: str) -> httpx.Response:
    # Ignore the environment's proxies.
    return httpx.get(f"{_url(port)}{path}", timeout=PATIENCE_S, trust_env=False)


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"


class Supervised(Protocol):
    """A process that can be killed and started again."""

    @property
    def is_running(self) -> bool: ...

    def begin(self) -> None: ...

    def kill(self) -> None: ...


class Supervisor:
    """Restarts units that die. At the end of the `with` block it kills all of them, the last one first."""

    def __init__(self) -> None:
        self._watched: list[Supervised] = []
        self._held: list[Supervised] = []
        self._lock = Lock()  # Don't start a unit while it is being killed.
        self._end = Event()
        self._thread = Thread(target=self._watch, name="supervisor")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        for each in reversed(self._watched):
            each.kill()

    def begin(self, each: Supervised) -> None:
        with self._lock:
            self._watched.append(each)
            each.begin()

    def kill(self, each: Supervised) -> None:
        """Kill a unit with kill -9; it is restarted at once."""
        with self._lock:
            each.kill()

    def take_away(self, each: Supervised) -> None:
        """Kill a unit with kill -9 without restarting it, like a lost machine."""
        with self._lock:
            self._held.append(each)
            each.kill()

    def give_back(self, each: Supervised) -> None:
        with self._lock:
            self._held.remove(each)

    def _watch(self) -> None:
        while not self._end.wait(RESTART_S):
            self.look()

    def look(self) -> None:
        """Start units that died and were not removed."""
        with self._lock:
            for each in self._watched:
                if each not in self._held and not each.is_running:
                    # Its port may still be taken, so try again.
                    with suppress(CannotTry):
                        each.begin()
