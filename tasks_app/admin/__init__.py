"""Django's admin: ad hoc edits, through the store. What each page may be used for, `policy.may` says."""

from . import tasks, tokens, trail

__all__ = ["tasks", "tokens", "trail"]
