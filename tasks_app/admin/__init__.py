"""Django's admin for ad hoc edits, which go through the store. `policy.may` decides about each page."""

from . import tasks

__all__ = ["tasks"]
