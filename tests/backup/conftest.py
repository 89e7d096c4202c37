"""Commands on the test database, as whoever types them notices."""

import pytest
from django.core.management import call_command


@pytest.fixture
def command(transactional_db, capsys):
    """The exit code of a command, and all that it wrote."""

    def run(*arguments):
        try:
            call_command(*map(str, arguments))
            code: object = 0
        except SystemExit as ended:
            code = ended.code
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


@pytest.fixture
def refusal(command):
    """The line with which a command refuses."""

    def run(*arguments):
        code, told = command(*arguments)
        assert (code, told.count("\n"), told.startswith("taskstore: ")) == (2, 1, True)
        return told

    return run
