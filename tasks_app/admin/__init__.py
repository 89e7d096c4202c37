"""Django's admin: ad hoc edits, through the store. What each page may be used for, `policy.may` says."""

from . import audit, tasks, tokens

__all__ = ["audit", "tasks", "tokens"]
