"""Data that is too large to be written again with each successor: it is kept once, and successors share it."""

# From this size on. Measured with twenty claims and renewals: of 1 MB three to five times as
# many a second; of 20 kB the second row costs as much as it saves.
PAYLOAD_BYTES = 64 * 2**10
OWN_ID = -1  # The payload of a draft whose data is to be kept under the id that it will get.


def whole_data(table: str) -> str:
    """An expression: the data of a task's row, wherever it is kept. `table`: its name or alias, as SQL."""
    shared = f"SELECT data FROM tasks_app_payload WHERE tasks_app_payload.id = {table}.payload"  # noqa: S608
    return f"CASE WHEN {table}.payload = 0 THEN {table}.data ELSE ({shared}) END"
