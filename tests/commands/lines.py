"""Commands of these tests."""

from taskstore.types.command_record import Command

LATER = 2 * 10**9  # No test waits so long.


def command(line, number=0, **members):
    return Command(
        **{"id": f"{number}_0", "cmd": line, "until": LATER, "expected_duration": 1, "max_fails": 1, **members}
    )
