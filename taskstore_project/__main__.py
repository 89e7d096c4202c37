"""The commands: `python3 manage.py X` in a checkout, `taskstore X` where the wheel is installed."""

import errno
import gc
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import NoReturn

from taskstore_project import command_table as client_commands
from taskstore_project import program

USERS_MISTAKE = 2
# What they do is more than what they say.
GO_ON_UNHEARD = ("up", "serve", "work", "schedule", "commands", "migrate")
REMEDY = 'pip install "taskstore[server]"'


OUTPUT_FAILS = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EPIPE)


def main() -> None:
    """Run a command. One whose output can't be written ends with one line on standard error and exit code 1."""
    try:
        try:
            run()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except UnicodeEncodeError as problem:
        if problem.encoding.lower().replace("_", "-") == "utf-8":
            raise
        character = ascii(problem.object[problem.start])
        cannot_write(f"its encoding, {problem.encoding}, has no {character}: set PYTHONIOENCODING=utf-8")
    except OSError as problem:
        if problem.errno not in OUTPUT_FAILS or problem.filename is not None:
            raise
        cannot_write(problem.strerror or str(problem) if problem.errno != errno.EPIPE else "")


def cannot_write(why: str) -> NoReturn:
    """End the program. `why`: empty when its reader has read enough."""
    with suppress(OSError):  # What is left in the buffer would fail again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if why:
        print(f"taskstore: the output can't be written: {why}", file=sys.stderr)
    sys.exit(1)


def run() -> None:
    """Run a command of the client, or a management command of Django.

    `--data DIR` works with every command, including Django's own. A malformed setting ends the program
    with one line on standard error and exit code 2.
    """
    # Also for the settings, which depend on the command.
    sys.argv = arguments = take_data_folder(sys.argv)
    typed = arguments[1:]
    if sys.stdout is None and client_commands.named(typed) not in GO_ON_UNHEARD:
        cannot_write("standard output is closed")
    if client_commands.COMPLETION not in os.environ:  # A warning would disturb the completion of a line.
        program.warn()
    if (asked := client_commands.asked_for(typed)) is not None:
        client_commands.run(asked)
    elif client_commands.is_for_help(typed):
        print(client_commands.summary(has_server=bool(find_spec("django"))))
    elif typed in (["--version"], ["version"]):
        print(f"taskstore {program.version()}")
    else:
        manage(arguments, client_commands.named(typed))


def manage(arguments: list[str], name: str) -> None:
    """Run a management command, which needs the server's packages."""
    ours = client_commands.names()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "taskstore_project.settings")
    # What is imported stays: looking for garbage among it took a tenth of the start.
    gc.disable()
    try:
        import django
        from django.conf import settings
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line, get_commands
        from environs.exceptions import EnvError
    except ModuleNotFoundError as missing:
        if name and name not in ours:
            stop(program.unknown_command(name, ours))
        stop(f"the server is not installed here ({missing}): {REMEDY}")
    try:
        settings.INSTALLED_APPS  # noqa: B018 - reads the settings now, to report their errors here.
    except (EnvError, ImproperlyConfigured) as mistake:
        stop(mistake)
    if name:
        django.setup()  # Django finds the commands of applications only after this.
        if name not in ours and name not in get_commands():
            stop(program.unknown_command(name, ours, others=get_commands()))
    gc.freeze()
    gc.enable()
    execute_from_command_line(arguments)


def take_data_folder(arguments: list[str]) -> list[str]:
    """Move `--data DIR` to TASKSTORE_DATA and return the other arguments.

    The settings depend on it, and they are read before Django parses a command's options.
    """
    others: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if argument == "--":
            return [*others, argument, *remaining]
        if name != "--data":
            others.append(argument)
            continue
        folder = value if equals else next(remaining, "")
        if not folder:
            stop("--data needs a directory")
        os.environ["TASKSTORE_DATA"] = folder
        client_commands.OPTIONS["data"] = program.data_option(folder)
    return others


def stop(mistake: object) -> NoReturn:
    print(f"taskstore: {mistake}", file=sys.stderr)
    sys.exit(USERS_MISTAKE)


if __name__ == "__main__":
    main()
