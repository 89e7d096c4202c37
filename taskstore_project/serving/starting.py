"""Common steps of commands that start a server: data directory, database, first admin, token for this machine."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import DEFAULT_DB_ALIAS, connection
from django.db import Error as DatabaseProblem

from tasks_app import database
from tasks_app.access import tokens
from tasks_app.access.people import FIRST_ADMIN, make_first_admin
from tasks_app.access.policy import ANYTHING
from tasks_app.grpc_api.port import GrpcPort
from tasks_app.models import Scope, Task, Token
from tasks_app.offload.memory import give_back_at_once
from taskstore.types.scalars import GROUP_LENGTH
from taskstore.types.sentences import text
from taskstore.types.tasks import NewTask
from taskstore_project import private_files, startup_migration
from taskstore_project.base_command import CannotRun, ProjectCommand, number_between
from taskstore_project.data_directory import FolderTaken, Lock, ServerFile
from taskstore_project.serving import sd_notify
from taskstore_project.serving.listening import Address, held_grpc_port, local_url, resolve

log = logging.getLogger(__name__)

RENEWED_EVERY_S = tokens.NODE_TOKEN_LIFE.total_seconds() / 6
RENEWED_AGAIN_S = 15.0  # After a failure.
RENEWAL_PATIENCE_S = 1.0  # A renewal that hangs does not keep the server from its end.

CUT_OFF = 1  # The exit code when an answer took longer than the server could wait.


port_number = number_between(0, 2**16 - 1, "a port")


class ServerCommand(ProjectCommand, ABC):
    """Gets everything ready, serves until it is told to end, and ends in good order."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
        parser.add_argument(
            "--port",
            type=port_number,
            default=8048,
            help="port of the console and the REST API (default: 8048; 0: any free port)",
        )
        parser.add_argument(
            "--grpc-port",
            type=port_number,
            default=50053,
            help="port of gRPC, for clients of MassTasker (default: 50053; 0: no gRPC)",
        )
        parser.add_argument(
            "--bootstrap-group",
            type=group_or_none,
            default=settings.TASKSTORE_BOOTSTRAP_GROUP,
            metavar="NAME",
            help="add an empty task to this group if the store has never had a task",
        )
        parser.add_argument(
            "--add-tables",
            action="store_true",
            help="add the server's tables to the database of a Django project that lacks some",
        )
        parser.add_argument("--no-auth", action="store_true", help="do not ask programs on this machine for a token")
        parser.add_argument(
            "--commands",
            action="store_true",
            default=settings.TASKSTORE_COMMANDS,
            help="accept shell commands from users and tokens that have permission to submit them",
        )

    @abstractmethod
    def serve(self, bound: socket.socket, url: str, grpc: GrpcPort | None, options: Mapping[str, Any]) -> bool:
        """Serve on a socket that listens already, and gRPC beside it.

        Returns whether everything was answered at the end.
        """

    def handle(self, *, host: str, port: int, grpc_port: int, no_auth: bool, commands: bool, **options: Any) -> None:
        leave_quietly_when_told()
        os.umask(0o077)
        # Each connection is an open file.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        address = resolve(host, port)
        refuse_strangers(address, no_auth=no_auth)
        held = held_grpc_port(host, grpc_port)
        key = private_files.read_or_make(settings.TASKSTORE_DATA)
        if not settings.TASKSTORE_SECRET_KEY_FILE:
            settings.SECRET_KEY = key
        with folder_lock(settings.TASKSTORE_DATA) as lock, address.bind() as bound, held as grpc:
            url = local_url(bound)
            allow(url, no_auth=no_auth, commands=commands)
            with startup_migration.alone():
                self.check()
                make_ready(lock, url, options["bootstrap_group"], adds_tables=options["add_tables"])
            address.listen(bound)
            with access_for_this_machine(lock, url, grpc):
                if not self.serve(bound, url, grpc, options):
                    leave_at_once()
            end_in_good_order(lock)


def group_or_none(name: str) -> str:
    """The name of a group, or an empty text."""
    for _, problem in text("", name, GROUP_LENGTH):
        raise argparse.ArgumentTypeError(problem)
    return name


def leave_quietly_when_told() -> None:
    """SIGTERM and Ctrl-C while the server gets ready: undo what is half done, and leave without a traceback."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def refuse_strangers(address: Address, *, no_auth: bool) -> None:
    """Raises CannotRun where more than this machine could come in and nobody has said that it may."""
    if not (address.is_loopback or settings.TASKSTORE_PUBLIC_URL):
        raise CannotRun(
            f"--host {address.host} lets other machines reach the server: set TASKSTORE_PUBLIC_URL to the "
            "address that browsers use for it, for example https://tasks.example.org"
        )
    if no_auth and not (address.is_loopback and not settings.TASKSTORE_PUBLIC_URL):
        raise CannotRun(
            "--no-auth can't be used with --host or TASKSTORE_PUBLIC_URL, which let other machines reach the server"
        )


def folder_lock(folder: Path) -> AbstractContextManager[Lock | None]:
    """The lock of the data directory; None where another server has it and may.

    Raises FolderTaken when both would write the same SQLite file.
    """
    try:
        return Lock.take(folder)
    except FolderTaken:
        if not database.dialect_of(DEFAULT_DB_ALIAS).serves_many:
            raise
        return nullcontext()  # The database keeps several servers apart by itself.


def allow(url: str, *, no_auth: bool, commands: bool) -> None:
    """Settings that only the command line knows."""
    settings.TASKSTORE_NO_AUTH, settings.TASKSTORE_COMMANDS = no_auth, commands
    host = url.removeprefix("http://").rpartition(":")[0]
    # Programs on this machine come by this address, whatever the public one is.
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, host]


def make_ready(lock: Lock | None, url: str, bootstrap_group: str, *, adds_tables: bool = False) -> None:
    is_own = startup_migration.migrate(adds_tables=adds_tables)
    # Not before: a directory with something else in it, where no server can start, stays as it is.
    private_files.put_right(settings.TASKSTORE_DATA)
    put_first_task(bootstrap_group)
    if lock:
        recover(lock)
        lock.begin(url, settings.TASKSTORE_DURABILITY)
    # Said at once: whatever fails after this, nobody could ever learn the password.
    # In the database of a project, its people sign in.
    if is_own and (password := make_first_admin()):
        say(f"The first user is {FIRST_ADMIN}, with the password {password} (shown only once).")


def put_first_task(group: str) -> None:
    """One empty task, from which all work of a new store begins, as MassTasker has it."""
    if group and database.newest_id() == 0:
        Task.objects.commit(owner=0, adds=[NewTask(group=group)])


def recover(lock: Lock) -> None:
    if lock.before.may_have_lost_ids:
        database.dialect_of(DEFAULT_DB_ALIAS).jump_ids()


@contextmanager
def access_for_this_machine(lock: Lock | None, url: str, grpc: GrpcPort | None) -> Iterator[None]:
    """Addresses and a token of this start for programs on this machine, in `server.json` while the server runs."""
    if not lock:  # The first server of the directory has written its own.
        yield
        return
    file = ServerFile(settings.TASKSTORE_DATA)
    if left_behind := tokens.valid(file.token() or ""):
        left_behind.delete()  # Of a server that was killed.
    # Who can read the file runs the server as well, and decides whether it takes shell commands.
    scope = ANYTHING if settings.TASKSTORE_COMMANDS else Scope.OPERATE
    node = f"{socket.gethostname()[:64]}:{url.rpartition(':')[2]}"
    token, secret = tokens.create_for_node(node, scope)
    file.write(url, grpc.address if grpc else "", secret)
    with renewed(token):
        yield
    forget(token, file)


@contextmanager
def renewed(token: Token) -> Iterator[None]:
    """Renew the token of this node while the block runs. That of a node which was lost expires within half an hour."""
    must_end = threading.Event()
    # A thread, as one of the two servers has no loop beside which the database could be asked.
    thread = threading.Thread(target=keep_renewing, args=(token, must_end), name="token of this node", daemon=True)
    thread.start()
    try:
        yield
    finally:
        must_end.set()
        thread.join(RENEWAL_PATIENCE_S)


def keep_renewing(token: Token, must_end: threading.Event) -> None:
    pause_s = RENEWED_EVERY_S
    while not must_end.wait(pause_s):
        try:
            if not tokens.renew(token):
                return
            pause_s = RENEWED_EVERY_S
        except DatabaseProblem as problem:
            if pause_s == RENEWED_EVERY_S:  # Once for each outage.
                log.warning("can't renew the token for this machine now: %s", problem)
            pause_s = RENEWED_AGAIN_S
        finally:
            connection.close()


def forget(token: Token, file: ServerFile) -> None:
    # Not only revoked: each start makes one, and the list of tokens would be full of them.
    try:
        connection.close()  # It is of the start: an outage since then has broken it.
        database.hurry()
        token.delete()
    except DatabaseProblem as problem:
        # The file stays: the next start finds the token by it.
        log.warning("can't revoke the token for this machine now: %s", problem)
    else:
        file.remove()


def leave_at_once() -> NoReturn:
    """End without waiting for the threads that are still at it, and without saying that all is well."""
    log.warning("stopped before all responses were sent: a request took too long")
    sys.stdout.flush()
    os._exit(CUT_OFF)


def end_in_good_order(lock: Lock | None) -> None:
    if not lock:
        return
    try:
        if database.is_opportunistic():
            database.dialect_of(DEFAULT_DB_ALIAS).flush()
    except DatabaseProblem as problem:
        log.warning("can't write the newest commits to disk now: %s", problem)
    else:
        lock.end()


def spare_the_collector() -> None:
    """What is there when a server is ready stays: to look through it each time would stop everybody for 50 ms.

    What comes later goes, from then on at once.
    """
    gc.collect()
    gc.freeze()
    give_back_at_once()


def say_ready(url: str, grpc: GrpcPort | None) -> None:
    if grpc:
        say(f"MassTasker clients can connect to {grpc.address}.")
    say(f"Task Store is ready: {settings.TASKSTORE_PUBLIC_URL or url}/console/")
    sd_notify.tell(sd_notify.READY)


def say(text: str) -> None:
    print(text, flush=True)
