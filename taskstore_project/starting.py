"""What the commands that start a server share: data folder, database, first admin, token for this machine."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import Error as DatabaseProblem
from django.db import connection

from tasks_app import database, tokens, validation
from tasks_app.grpc_api.port import GrpcPort
from tasks_app.models import Scope, Task, Token
from tasks_app.operations import NewTask
from tasks_app.people import FIRST_ADMIN, make_first_admin
from tasks_app.policy import ANYTHING
from taskstore_project import migration, supervisor
from taskstore_project.commands import CannotRun, ProjectCommand
from taskstore_project.data_directory import FolderTaken, Lock, ServerFile
from taskstore_project.grpc_listening import held_grpc_port
from taskstore_project.listening import Address, local_url, resolve

log = logging.getLogger(__name__)

CUT_OFF = 1  # The exit code when an answer took longer than the server could wait.


class ServerCommand(ProjectCommand, ABC):
    """Gets everything ready, serves until it is told to end, and ends in good order."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
        parser.add_argument("--port", type=port_number, default=8048, help="default: 8048; 0: any free one")
        parser.add_argument(
            "--grpc-port", type=port_number, default=50053, help="for clients of MassTasker (default: 50053; 0: none)"
        )
        parser.add_argument(
            "--bootstrap-group",
            type=group_or_none,
            default=settings.TASKSTORE_BOOTSTRAP_GROUP,
            metavar="NAME",
            help="a store that has never held a task gets an empty one in this group",
        )
        parser.add_argument("--no-auth", action="store_true", help="programs on this machine need no token")
        parser.add_argument(
            "--commands",
            action="store_true",
            default=settings.TASKSTORE_COMMANDS,
            help="take shell commands, which workers run, from whoever has the right",
        )

    @abstractmethod
    def serve(self, bound: socket.socket, url: str, grpc: GrpcPort | None, options: Mapping[str, Any]) -> bool:
        """Serve on a socket that listens already, and gRPC beside it.

        Returns whether everything was answered at the end.
        """

    def handle(self, *, host: str, port: int, grpc_port: int, no_auth: bool, commands: bool, **options: Any) -> None:
        leave_quietly_when_told()
        os.umask(0o077)
        address = resolve(host, port)
        refuse_strangers(address, no_auth=no_auth)
        held = held_grpc_port(host, grpc_port)
        with folder_lock(settings.TASKSTORE_DATA) as lock, address.bind() as bound, held as grpc:
            url = local_url(bound)
            allow(url, no_auth=no_auth, commands=commands)
            with migration.alone():
                self.check()  # With the database within reach: a newer Django asks it what it can do.
                make_ready(lock, url, options["bootstrap_group"])
            address.listen(bound)
            with access_for_this_machine(lock, url, grpc):
                if not self.serve(bound, url, grpc, options):
                    leave_at_once()
            end_in_good_order(lock)


def port_number(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is no port: it has to be a number from 0 to 65535")


def group_or_none(name: str) -> str:
    """The name of a group, or an empty text."""
    for _, wanted in validation.text("", name, validation.GROUP_LENGTH):
        raise argparse.ArgumentTypeError(f"no group can have this name: it has to be {wanted}")
    return name


def leave_quietly_when_told() -> None:
    """SIGTERM and Ctrl-C while the server gets ready: undo what is half done, and leave without a traceback."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def refuse_strangers(address: Address, *, no_auth: bool) -> None:
    """Raises CannotRun where more than this machine could come in and nobody has said that it may."""
    if not (address.is_loopback or settings.TASKSTORE_PUBLIC_URL):
        raise CannotRun(
            f"with --host {address.host} other machines reach the server: set TASKSTORE_PUBLIC_URL to the "
            "address that browsers use for it, for example https://tasks.example.org"
        )
    if no_auth and not (address.is_loopback and not settings.TASKSTORE_PUBLIC_URL):
        raise CannotRun("--no-auth is for this machine alone: leave out --host and TASKSTORE_PUBLIC_URL, or --no-auth")


def folder_lock(folder: Path) -> AbstractContextManager[Lock | None]:
    """The lock of the data folder; None where another server has it and may.

    Raises FolderTaken when both would write the same SQLite file.
    """
    try:
        return Lock.take(folder)
    except FolderTaken:
        if connection.vendor == "sqlite":
            raise
        return nullcontext()  # PostgreSQL keeps several servers apart by itself.


def allow(url: str, *, no_auth: bool, commands: bool) -> None:
    """Settings that only the command line knows."""
    settings.TASKSTORE_NO_AUTH, settings.TASKSTORE_COMMANDS = no_auth, commands
    host = url.removeprefix("http://").rpartition(":")[0]
    # Programs on this machine come by this address, whatever the public one is.
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, host]


def make_ready(lock: Lock | None, url: str, bootstrap_group: str) -> None:
    migration.migrate()
    put_first_task(bootstrap_group)
    if lock:
        recover(lock)
        lock.begin(url, settings.TASKSTORE_DURABILITY)
    # Said at once: whatever fails after this, nobody could ever learn the password.
    if password := make_first_admin():
        say(f"The first user is {FIRST_ADMIN}, with the password {password} (shown only now).")


def put_first_task(group: str) -> None:
    """One empty task, from which all work of a new store begins, as MassTasker has it."""
    if group and database.newest_id() == 0:
        Task.objects.commit(owner=0, adds=[NewTask(group=group)])


def recover(lock: Lock) -> None:
    if connection.vendor == "sqlite" and lock.before.may_have_lost_ids:
        database.jump_ids_of_sqlite()


@contextmanager
def access_for_this_machine(lock: Lock | None, url: str, grpc: GrpcPort | None) -> Iterator[None]:
    """Addresses and a token of this start for programs on this machine, in `server.json` while the server runs."""
    if not lock:  # The first server of the folder has written its own.
        yield
        return
    file = ServerFile(settings.TASKSTORE_DATA)
    if left_behind := tokens.valid(file.token() or ""):
        left_behind.delete()  # Of a server that was killed.
    # Who can read the file runs the server as well, and decides whether it takes shell commands.
    scope = ANYTHING if settings.TASKSTORE_COMMANDS else Scope.OPERATE
    token, secret = tokens.create(tokens.THIS_MACHINE, scope)
    file.write(url, grpc.address if grpc else "", secret)
    yield
    forget(token, file)


def forget(token: Token, file: ServerFile) -> None:
    # Not only revoked: each start makes one, and the list of tokens would be full of them.
    try:
        database.hurry()
        token.delete()
    except DatabaseProblem as problem:
        # The file stays: the next start finds the token by it.
        log.warning("can't revoke the token for this machine now: %s", problem)
    else:
        file.remove()


def leave_at_once() -> NoReturn:
    """End without waiting for the threads that are still at it, and without saying that all is well."""
    log.warning("ended before everything was answered: a request took too long")
    sys.stdout.flush()
    os._exit(CUT_OFF)


def end_in_good_order(lock: Lock | None) -> None:
    if not lock:
        return
    try:
        if connection.vendor == "sqlite" and database.is_opportunistic():
            database.flush_sqlite()
    except DatabaseProblem as problem:
        log.warning("can't bring the newest commits to the disk now: %s", problem)
    else:
        lock.end()


def spare_the_collector() -> None:
    """What is there when a server is ready stays: to look through it each time would stop everybody for 50 ms."""
    gc.collect()
    gc.freeze()


def say_ready(url: str, grpc: GrpcPort | None) -> None:
    if grpc:
        say(f"Clients of MassTasker find it at {grpc.address}.")
    say(f"Task Store is ready: {settings.TASKSTORE_PUBLIC_URL or url}/console/")
    supervisor.tell(supervisor.READY)


def say(text: str) -> None:
    print(text, flush=True)
