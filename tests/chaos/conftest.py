"""A history, in a moment."""

import random

import pytest

from lab.chaos.client import Client, Orders
from lab.chaos.history import History, events_in

MOVES = 600


@pytest.fixture
def record(tmp_path, monkeypatch):
    """What three clients see of a server, one request after the other, on a clock that runs by itself."""

    def record(server, *, resends=False):
        clock = iter(range(1_000_000, 10**9, 3))

        def now(_, word):
            server.now_ms = next(clock)
            return {f"{word}_s": server.now_ms / 1000, f"{word}_ms": server.now_ms}

        monkeypatch.setattr(Client, "now", now)
        monkeypatch.setattr(Client, "reach", lambda self: self)
        monkeypatch.setattr(Client, "send", lambda self, there, method, path, body: noted(*server.answer(path, body)))
        files = [tmp_path / f"{number}.jsonl" for number in (1, 2, 3)]
        clients = [
            Client(
                Orders(addresses=[], token="", number=number, file=str(file), resends=resends, plans=False),
                file.open("w"),
            )
            for number, file in enumerate(files, 1)
        ]
        chance = random.Random(1)
        for _ in range(MOVES):
            someone = chance.choice(clients)
            moves = [someone.add, someone.claim, someone.work, someone.interfere, someone.look]
            chance.choice([*(5 * moves), someone.cancel, someone.batch])()
        for someone in clients:
            someone.notes.close()
        return History(list(events_in(files)), server.truth())

    return record


def noted(status, answer):
    return {"status": status, "answer": answer}
