"""What pages take for granted when they say `<!-- needs: NAME -->`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from taskstore import Client, NewTask

if TYPE_CHECKING:
    from .session import Session


def failed_mail(session: Session) -> None:
    """Tasks of the group `mail` that have failed, a first one among them."""
    with client(session) as store:
        store.commit(adds=[NewTask(group="mail", data=b"hello", error="no such host") for _ in range(3)])


def people(session: Session) -> None:
    """people.txt, of two lines."""
    (session.folder / "people.txt").write_text("ann@example.org\nbob@example.org\n")


def lines(session: Session) -> None:
    """lines.txt, with 200 command lines."""
    (session.folder / "lines.txt").write_text("".join(f"echo {number}\n" for number in range(200)))


def commands(session: Session) -> None:
    """DIR, with a new command as TDF2 keeps it."""
    new = session.folder / "DIR" / "new"
    new.mkdir(parents=True)
    (new / "7_0.task").write_text("7_0\n7\n4000000000\n5\n1\n0\necho A\n")


def client(session: Session) -> Client:
    return Client(url=session.server.url, token=session.store.token)


NEEDS: dict[str, Callable[[Session], None]] = {
    "failed mail": failed_mail,
    "people.txt": people,
    "lines.txt": lines,
    "DIR": commands,
}
