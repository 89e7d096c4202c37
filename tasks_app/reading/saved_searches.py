"""Searches that a person keeps under a name. Nobody else sees the names; the search itself is an address to share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from taskstore.errors import InvalidInput, LimitExceeded, refuse

from ..core.validation import text
from ..models import SavedSearch
from .search import grammar

MOST = 50  # A person.
NAME_LENGTH = 100


def saved_by(user: User) -> list[SavedSearch]:
    """Those of the user, by name."""
    return sorted(SavedSearch.objects.filter(user=user), key=lambda saved: saved.name.casefold())


def save(user: User, name: str, q: str) -> SavedSearch:
    """Keep a search. Raises InvalidInput when it is none, or has no name of its own; LimitExceeded beyond 50."""
    if not grammar.parse(q):
        raise InvalidInput({"q": ["must have at least one term"]})
    if SavedSearch.objects.filter(user=user).count() >= MOST:
        raise LimitExceeded({"name": [f"you have {MOST} saved searches, and that is the limit: delete one first"]})
    with _own_name(name):
        return SavedSearch.objects.create(user=user, name=name, q=q)


def rename(user: User, search_id: int, name: str) -> None:
    """Give it another name. Raises InvalidInput when the user has no such search, or another one of that name."""
    with _own_name(name):
        if not SavedSearch.objects.filter(user=user, id=search_id).update(name=name):
            raise InvalidInput({"search": ["must be one of your saved searches: this one may have been deleted"]})


def delete(user: User, search_id: int) -> None:
    """Forget it. One that is gone already stays so."""
    SavedSearch.objects.filter(user=user, id=search_id).delete()


@contextmanager
def _own_name(name: str) -> Iterator[None]:
    if not name:
        raise InvalidInput({"name": ["must not be empty"]})
    refuse(text("name", name, NAME_LENGTH))
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        raise InvalidInput({"name": [f"must be unique: you have another search named {name}"]}) from None
