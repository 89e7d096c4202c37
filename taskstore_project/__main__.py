"""The commands: `python3 manage.py X` in a checkout, `taskstore X` where the wheel is installed."""

import os
import sys
from typing import NoReturn

USERS_MISTAKE = 2


def main() -> None:
    """Run the management command that the command line names.

    `--data DIR` works with every command, Django's own too. A malformed setting is one line
    on standard error and exit code 2.
    """
    arguments = take_data_folder(sys.argv)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "taskstore_project.settings")
    try:
        from django.conf import settings
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from environs.exceptions import EnvError
    except ModuleNotFoundError as missing:
        stop(f'the server is not installed here ({missing}): pip install "taskstore[server]"')
    try:
        settings.INSTALLED_APPS  # noqa: B018 - reads the settings now, where a mistake in them can be told.
    except (EnvError, ImproperlyConfigured) as mistake:
        stop(mistake)
    execute_from_command_line(arguments)


def take_data_folder(arguments: list[str]) -> list[str]:
    """Move `--data DIR` to TASKSTORE_DATA and return the other arguments.

    The settings depend on it, and they are read before Django looks at a command's options.
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
            stop("--data needs a folder")
        os.environ["TASKSTORE_DATA"] = folder
    return others


def stop(mistake: object) -> NoReturn:
    print(f"taskstore: {mistake}", file=sys.stderr)
    sys.exit(USERS_MISTAKE)


if __name__ == "__main__":
    main()
