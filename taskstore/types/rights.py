"""The permissions of tokens and people."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    SEE = "see"  # Groups, counts, tasks without their data.
    SEE_PAYLOADS = "see payloads"  # The data of tasks.
    WORK = "work"  # Add and claim tasks, commit results.
    OPERATE = "operate"  # Override owners: requeue, move, edit, purge. See the audit log: reasons may name people.
    ADMINISTER = "administer"  # Users and tokens.
    COMMANDS = "commands"  # Submit shell commands, run them, and change them in any other way.
