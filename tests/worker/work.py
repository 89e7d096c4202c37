"""Pieces of work for every executor: a piece notes its process in a file of its name, takes its time, and ends.

Functions and jobs run the same code; the line of a shell does the same.
"""

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from taskstore import Context, NewTask, Task, current_job, job

END = "end"  # All pieces end once there is a file of this name.


class Piece(NamedTuple):
    name: str
    seconds: float = 0
    awaits: str = ""  # A file.
    program: bool = False  # Whether another program takes the time.

    @property
    def line(self) -> str:
        awaiting = f"until [ -e {self.awaits} ]; do sleep 0.05; done; " if self.awaits else ""
        return f"echo '::progress 0.5 half'; echo $$ >>{self.name}; {awaiting}sleep {self.seconds}"

    def begin(self, folder: Path) -> None:
        with (folder / self.name).open("a") as notes:
            notes.write(f"{os.getpid()}\n")

    def is_over(self, folder: Path, began: float) -> bool:
        is_awaiting = bool(self.awaits) and not (folder / self.awaits).exists()
        return (folder / END).exists() or not (is_awaiting or time.monotonic() < began + self.seconds)


def piece_of(task: Task) -> tuple[Piece, Path]:
    data = task.json()
    return Piece(*data["piece"]), Path(data["folder"])


def function(task: Task, context: Context) -> NewTask:
    piece, folder = piece_of(task)
    context.progress(0.5, "half")
    piece.begin(folder)
    began = time.monotonic()
    if piece.program:
        subprocess.run(["sleep", str(piece.seconds)], check=True)
    while not piece.is_over(folder, began):
        if context.lost.wait(0.02):
            (folder / f"{piece.name}.told").touch()
            context.check()
    return NewTask(group="done", data=piece.name.encode())


async def coroutine(task: Task, context: Context) -> NewTask:
    piece, folder = piece_of(task)
    context.progress(0.5, "half")
    piece.begin(folder)
    began = time.monotonic()
    try:
        if piece.program:
            process = await asyncio.create_subprocess_exec("sleep", str(piece.seconds))
            if code := await process.wait():
                raise OSError(f"sleep ended with {code}")
        while not piece.is_over(folder, began):  # noqa: ASYNC110 - a file has no event.
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        (folder / f"{piece.name}.told").touch()
        raise
    return NewTask(group="done", data=piece.name.encode())


@job
def as_job(folder: str, *members: object) -> str:
    piece = Piece(*members)  # type: ignore[arg-type]
    current_job().progress(0.5, "half")
    piece.begin(Path(folder))
    began = time.monotonic()
    if piece.program:
        subprocess.run(["sleep", str(piece.seconds)], check=True)
    while not piece.is_over(Path(folder), began):
        time.sleep(0.02)
    return piece.name
