"""The fork server, the runners that it forks, and the Python processes that these fork (see children.py)."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from . import process_tree as tree
from .children import (
    END_S,
    EXIT_S,
    INTERRUPT,
    LEAVE_S,
    LEAVES,
    NO_OUTPUT,
    REPORTS,
    REST_S,
    RETIRE_S,
    SAYS,
    STOPS,
    Channel,
    Desk,
    Event,
    News,
    NotPrepared,
    Over,
    Serve,
    Setup,
    Shell,
    Stop,
    Why,
    Work,
    cause_of_death,
    interpreter,
)
from .outputs import AT_ONCE, STANDARD_ERROR, Capture, CopiedLines, ProgressLines, StandardError

LIVE_BYTES = 8 * 2**10  # The size of a live output.
FIRST_NEWS_S, NEWS_S = 0.2, 1.0
TOGETHER_S = 0.01  # How long the end of work waits to be told with the next ones.
MOST_UNSENT = 2**20  # Bytes.
MEMORY_S = 0.25
FULL_S = 1.0  # For work that uses too much memory to clean up.
LEFTOVERS_S = 0.01
SIGNALS_S = 0.5  # For a signal to reach the runner, if it was sent to all processes.
CHANGED = (*STOPS, signal.SIGHUP, signal.SIGCHLD, INTERRUPT)  # By the fork server and the runner.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # By Python, but not by a shell.


# ---- The fork server


def main(descriptor: str) -> NoReturn:
    """Run a fork server."""
    for number in (*STOPS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The owner decides.
    tree.adopt_orphans()  # Those of a runner that was killed.
    control = Channel(socket.socket(fileno=int(descriptor)))
    os.set_inheritable(control.fileno(), False)
    said = control.wait()
    if said is None:
        os._exit(1)
    setup: Setup = pickle.loads(said)  # noqa: S301 - of the owner.
    if setup.captures:
        write_by_line()  # Its forks do, too.
    serve = about = None
    try:
        if setup.prepare and setup.spawn:
            about = tried(setup.prepare)
        elif setup.prepare:
            serve, about = prepared(setup.prepare)
    except NotPrepared as problem:
        control.send(pickle.dumps(str(problem)))
        control.drain(END_S)
        os._exit(1)
    # Keep the garbage collector of the forks from touching, and so copying, the shared pages.
    gc.collect()
    gc.freeze()
    control.send(pickle.dumps((threading.active_count(), about)))
    control.drain(END_S)
    fork_runners(control, setup, serve)
    os._exit(0)  # Skip the exit handlers and non-daemon threads of imported modules.


def prepared(prepare: bytes) -> tuple[Serve, Any]:
    """Return the function that serves, and what its owner is to know. Raises NotPrepared."""
    try:
        found: tuple[Serve, Any] = pickle.loads(prepare)()  # noqa: S301 - of the owner.
        return found
    except NotPrepared:
        raise
    except Exception as problem:
        raise NotPrepared(f"{type(problem).__name__}: {problem}") from problem


def tried(prepare: bytes) -> Any:
    """Return what the owner of a new interpreter is to know. Raises NotPrepared."""
    answer, written = os.pipe()
    words = [*interpreter(__name__, "try_to_prepare"), str(written)]
    done = subprocess.run(
        words, input=prepare, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[written], check=False
    )
    os.close(written)
    with open(answer, "rb") as answered:
        said = answered.read()
    if not said:
        text = done.stdout.decode(errors="replace")
        raise NotPrepared(f"{cause_of_death(done.returncode)}\n{text}".rstrip())
    about, problem = pickle.loads(said)  # noqa: S301 - of our own process.
    if problem:
        raise NotPrepared(problem)
    return about


def try_to_prepare(answer: str) -> None:
    about, why = None, ""
    try:
        _, about = prepared(sys.stdin.buffer.read())
    except NotPrepared as problem:
        why = str(problem)
    with open(int(answer), "wb") as written:
        written.write(pickle.dumps((about, why)))
    os._exit(0)


def fork_runners(control: Channel, setup: Setup, serve: Serve | None) -> None:
    runners: set[int] = set()
    wakeups, wake = os.pipe()
    for end in (wakeups, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poller = select.poll()
    for source in (control.fileno(), wakeups):
        poller.register(source, select.POLLIN)

    def reap() -> bool:
        return tree.reap(lambda pid, _: runners.discard(pid))

    def strangers() -> Iterator[int]:
        """Find what has lost its runner, and so has become a child of this process."""
        for pid in [pid for pid in tree.children(os.getpid()) if pid not in runners]:
            yield from (pid, *tree.descendants(pid))

    while True:
        ready = {source for source, _ in poller.poll()}
        if wakeups in ready:
            os.read(wakeups, AT_ONCE)
            tree.kill_all(strangers, reap)
        if control.fileno() in ready:
            said, ends, *_ = socket.recv_fds(control.end, 1, 1)
            if not said:
                break
            for end in ends:
                os.set_inheritable(end, False)  # Otherwise a command could write to the owner.
                with socket.socket(fileno=end) as owner, suppress(OSError):  # No memory, or too many processes.
                    pid = os.fork()
                    if not pid:
                        run_as_runner(control, Channel(owner), setup, serve, (wakeups, wake))
                    runners.add(pid)
    until = time.monotonic() + LEAVE_S + REST_S
    while runners and time.monotonic() < until:
        reap()
        time.sleep(tree.PAUSE_S)
    tree.kill_all()


def run_as_runner(
    control: Channel, owner: Channel, setup: Setup, serve: Serve | None, pipes: Iterable[int]
) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for pipe in (control.fileno(), *pipes):
            os.close(pipe)
        Runner(owner, setup, serve).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


# ---- The runner


class Process:
    """The process that works. `notes`: it writes a byte there when it receives SIGTERM or SIGINT."""

    def __init__(self, pid: int, outputs: Sequence[Capture], channel: Channel | None, notes: int | None) -> None:
        self.pid, self.outputs, self.channel, self.notes = pid, outputs, channel, notes
        self.end = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        self.code: int | None = None  # None: it lives.

    def descriptors(self) -> list[int]:
        channel = [self.channel.fileno()] if self.channel else []
        others = [each for each in (self.notes, self.end) if each is not None]
        return [*(output.descriptor for output in self.outputs), *channel, *others]

    def close(self) -> None:
        for descriptor in self.descriptors():
            os.close(descriptor)
        if self.channel:
            self.channel.end.detach()


class Runner:
    def __init__(self, owner: Channel, setup: Setup, serve: Serve | None) -> None:
        self._owner, self._setup, self._serve = owner, setup, serve
        self._poller = select.poll()
        self._poller.register(owner, select.POLLIN)
        self._process: Process | None = None
        self._work: Work | None = None
        self._leaver: Work | None = None  # The last one, if its process ends with it.
        self._waiting: deque[tuple[Work, list[bytes]]] = deque()  # With the messages for the process.
        self._untold: list[bytes] = []  # Ends of work, to be told with the next ones, while more waits.
        self._tell_at = 0.0
        self._copies = StandardError()
        self._signalled_at = -1.0  # When this process received SIGTERM or SIGINT.
        tree.adopt_orphans()
        for number in STOPS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def run(self) -> None:
        """Do what the owner says until it has ended, or until there are processes that can't be killed."""
        while self._owner.is_open:
            self._await_channels()
            ready = dict(self._poller.poll(self._patience_ms()))
            if self._process:
                self._read(self._process, ready)
            if self._copies.is_behind:
                self._copies.flush()
            if self._owner.fileno() in ready:
                self._owner.flush()
                for message in self._owner.receive():
                    self._obey(message)
            if not self._look_after():
                self._tell()
                self._owner.drain(END_S)
                return
            self._begin_next()
            self._fork_ahead()
            if self._untold and (len(self._untold) >= len(self._waiting) or time.monotonic() > self._tell_at):
                self._tell()
        if self._process and self._process.channel and not self._work:
            self._retire(self._process.channel)
        tree.kill_all()
        self._copies.end(REST_S)

    def _await_channels(self) -> None:
        """Poll for what may be read, and for room where something is unsent."""
        self._poller.modify(self._owner, self._owner.awaited)
        if self._copies.is_behind:
            self._poller.register(STANDARD_ERROR, select.POLLOUT)
        else:
            with suppress(KeyError):
                self._poller.unregister(STANDARD_ERROR)
        channel = self._process.channel if self._process else None
        if channel and channel.is_open:
            # While the owner reads too little, the process waits with what it says.
            unread = select.POLLIN if self._owner.unsent > MOST_UNSENT else 0
            self._poller.modify(channel, channel.awaited & ~unread)

    def _retire(self, channel: Channel) -> None:
        """Have a process without work end by itself."""
        channel.end.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + RETIRE_S
        while self._reap() and time.monotonic() < until:
            time.sleep(tree.PAUSE_S)

    def _on_signal(self, *_: object) -> None:
        self._signalled_at = time.monotonic()

    def _obey(self, message: bytes) -> None:
        if self._waiting and len(self._waiting[-1][1]) < self._waiting[-1][0].messages:
            self._waiting[-1][1].append(message)
            return
        order: Work | Stop | bytes = pickle.loads(message)  # noqa: S301 - of the owner.
        if isinstance(order, Work):
            self._waiting.append((order, []))
        elif isinstance(order, Stop):
            self._stop(order)
        elif self._process and self._process.channel:
            self._process.channel.send(order)

    def _stop(self, order: Stop) -> None:
        if self._work and self._work.number == order.number and not order.only_waiting:
            self._interrupt(Why.STOPPED)
        for each in [each for each in self._waiting if each[0].number == order.number]:
            self._waiting.remove(each)
            self._tell(Over(number=order.number, why=Why.NOT_BEGUN))

    def _begin_next(self) -> None:
        is_free = not self._work and (self._process is None or self._process.code is None)
        if is_free and self._waiting and len(self._waiting[0][1]) == self._waiting[0][0].messages:
            work, messages = self._waiting.popleft()
            if work.shell and self._untold:
                self._tell()  # Before a line may kill this process.
            self._begin(work)
            if self._process and self._process.channel:
                self._process.channel.send(*messages)

    def _fork_ahead(self) -> None:
        """Have a process wait for the next work, once its predecessor has left."""
        if self._leaver and not self._process and not self._waiting:
            leaver, self._leaver = self._leaver, None  # Once: it may not be able to start.
            with suppress(OSError):
                self._process = self._python(leaver)

    # ---- Beginning

    def _begin(self, work: Work) -> None:
        self._work, self._why = work, None
        self._answer = b""
        self._began = time.monotonic()
        self._ended: float | None = None
        self._ends_at = None if work.limit_s is None else self._began + work.limit_s
        self._kills_at: float | None = None
        self._noted_at: float | None = None
        self._left, self._others = tree.NONE_KILLED
        self._news_at, self._memory_at = self._began + FIRST_NEWS_S, self._began + MEMORY_S
        self._has_news = True
        self._progress = ProgressLines()
        try:
            if work.shell:
                self._process = self._shell(work, work.shell)
            elif self._process and self._process.code is None:
                for output in self._process.outputs:
                    output.forget()
            else:
                self._process = self._python(work)
            self._copy(work, self._process)
        except (OSError, ValueError) as problem:  # A NUL in the line is a ValueError.
            self._why = Why.NOT_STARTED
            file = getattr(problem, "filename", None)
            self._finish(f"{file}: {problem.strerror}" if isinstance(problem, OSError) and file else str(problem))
            return

    def _copy(self, work: Work, process: Process) -> None:
        """Have what a work writes copied to standard error, if it wants that."""
        if work.copied_after is not None:
            for output in process.outputs:
                output.copied = CopiedLines(work.copied_after, self._copies)

    def _shell(self, work: Work, shell: Shell) -> Process:
        if self._setup.cwd:  # It may have been removed, or be another one by now.
            os.chdir(self._setup.cwd)
        pipes = [os.pipe() for _ in range(2)]
        try:
            pid = os.posix_spawn(
                shell.program,
                [shell.program, "-c", shell.line],
                shell.env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, pipe, place) for place, (_, pipe) in enumerate(pipes, 1)),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(*CHANGED, *IGNORED),
            )
        except BaseException:
            for end, _ in pipes:
                os.close(end)
            raise
        finally:
            for _, end in pipes:
                os.close(end)
        tree.prefer_for_oom_kill(pid)
        out, err = (end for end, _ in pipes)
        captures = [
            Capture(out, work.head_bytes, work.tail_bytes, self._progress),
            Capture(err, work.head_bytes, work.tail_bytes),
        ]
        return self._watched(Process(pid, captures, None, None))

    def _python(self, work: Work) -> Process:
        ours, theirs = socket.socketpair()
        notes, note = os.pipe()
        output, written = os.pipe() if self._setup.captures else (None, None)
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:
            for end in (ours, theirs):
                end.close()
            for pipe in (notes, note, output, written):
                if pipe is not None:
                    os.close(pipe)
            raise
        if not pid:
            ours.close()
            self._owner.end.close()
            work_in_process(parent, Desk(Channel(theirs), note), self._serve, written)
        theirs.close()
        for pipe in (note, written):
            if pipe is not None:
                os.close(pipe)
        outputs = [] if output is None else [Capture(output, work.head_bytes, work.tail_bytes)]
        channel = Channel(ours)
        if self._setup.spawn and self._setup.prepare:
            channel.send(self._setup.prepare)
        return self._watched(Process(pid, outputs, channel, notes))

    def _watched(self, process: Process) -> Process:
        for descriptor in process.descriptors():
            self._poller.register(descriptor, select.POLLIN)
        return process

    # ---- Reading

    def _read(self, process: Process, ready: Mapping[int, int]) -> None:
        for output in process.outputs:
            if output.descriptor in ready and not output.read():
                self._poller.unregister(output.descriptor)
        if process.notes is not None and process.notes in ready:
            if not os.read(process.notes, AT_ONCE):
                self._poller.unregister(process.notes)
            else:
                self._noted_at = self._noted_at or time.monotonic()
        if process.channel and process.channel.fileno() in ready:
            process.channel.flush()
            if ready[process.channel.fileno()] & ~select.POLLOUT:
                self._hear(process.channel)

    def _hear(self, channel: Channel) -> None:
        for message in channel.receive():
            kind, text = message[:1], message[1:]
            if kind == SAYS:
                self._tell(text)
            elif kind == REPORTS:
                self._progress.latest, self._has_news = pickle.loads(text), True  # noqa: S301 - of the work.
            elif self._work:
                self._answer = text
                if kind == LEAVES:
                    self._leaver = self._work
                    self._ends_at = self._ends_at or time.monotonic() + EXIT_S
                elif self._why:
                    self._kill()  # It may be in disorder.
                else:
                    self._finish()
        if not channel.is_open:
            with suppress(KeyError):
                self._poller.unregister(channel)

    def _reap(self) -> bool:
        """Reap what has ended. Returns whether there are other processes."""

        def ended(pid: int, status: int) -> None:
            if self._process and pid == self._process.pid:
                self._process.code = os.waitstatus_to_exitcode(status)

        return tree.reap(ended)

    # ---- Limits and the end

    def _look_after(self) -> bool:
        """Enforce limits, tell news, and clean up. Returns False if there are processes that can't be killed."""
        process = self._process
        if process is None:
            return True
        now = time.monotonic()
        are_there = self._reap()
        if process.code is not None:
            return self._clean_up(process, process.code, now, are_there)
        if not self._work:
            return True
        if self._noted_at and now > self._noted_at + SIGNALS_S:
            self._noted_at = None
            if not self._was_signalled():
                self._interrupt(Why.SIGNAL)
        if self._kills_at and now > self._kills_at:
            self._kill()
        elif self._ends_at and now > self._ends_at and not self._why:
            self._interrupt(Why.TIME)
        elif self._work.memory_bytes and now > self._memory_at and not self._why:
            self._memory_at = now + MEMORY_S
            if tree.is_above(self._work.memory_bytes, tree.descendants(os.getpid())):
                self._interrupt(Why.MEMORY)
        if now > self._news_at:
            self._news_at = now + NEWS_S
            self._tell_news(process)
        return True

    def _patience_ms(self) -> float | None:
        process = self._process
        if process is None:
            return None
        if process.code is not None or process.end is None or self._noted_at:
            return LEFTOVERS_S * 1_000
        if not self._work:
            return None
        times = [self._news_at, self._kills_at, None if self._why else self._ends_at]
        times.append(self._tell_at if self._untold else None)
        if self._work.memory_bytes:
            times.append(self._memory_at)
        return max(0.0, min(each for each in times if each) - time.monotonic()) * 1_000 + 1

    def _interrupt(self, why: Why) -> None:
        """Raise Stopped in the work, and kill it if it does not end in time."""
        if self._why or not self._work or not self._process:
            return
        self._why = why
        if not self._work.kill_after_s:
            self._kill()
            return
        patience_s = self._work.kill_after_s
        self._kills_at = time.monotonic() + (min(patience_s, FULL_S) if why is Why.MEMORY else patience_s)
        # First the work itself, so that it does not take the end of what it started for a failure.
        tree.send(self._process.pid, INTERRUPT)
        for pid in tree.descendants(self._process.pid):
            tree.send(pid, signal.SIGTERM)

    def _kill(self) -> None:
        self._kills_at = None
        self._ended = time.monotonic()
        _, self._others = tree.kill_all(are_there=self._reap)
        if self._process and self._process.code is None:
            self._process.code = -signal.SIGKILL

    def _was_signalled(self) -> bool:
        return self._signalled_at >= self._began

    def _clean_up(self, process: Process, code: int, now: float, are_there: bool) -> bool:
        """After the end of the process: wait for what it left behind, end that, and report."""
        self._ended = self._ended or now
        if process.end is not None:
            with suppress(KeyError):
                self._poller.unregister(process.end)
        if self._work:
            is_stopped = self._noted_at or code in (*(-number for number in STOPS), *(128 + number for number in STOPS))
            if is_stopped and not self._was_signalled() and now < self._ended + SIGNALS_S:
                return True
            if are_there and not self._others and now < self._ended + self._work.linger_s:
                return True
        if are_there and not self._others:
            self._left, self._others = tree.kill_all(are_there=self._reap)
        if process.channel:
            self._hear(process.channel)  # It may have answered before it ended.
        if self._work:
            self._finish()
        for descriptor in process.descriptors():
            with suppress(KeyError):
                self._poller.unregister(descriptor)
        process.close()
        self._process = None
        return not self._others

    def _finish(self, text: str = "") -> None:
        """Tell the owner that the work is over."""
        process = self._process
        captures = process.outputs if process else ()
        for capture in captures:
            capture.read()
            capture.end_line()
        over = Over(
            number=self._work.number if self._work else 0,
            answer=self._answer,
            pid=process.pid if process else 0,
            code=(process.code or 0) if process else 0,
            took_s=(self._ended or time.monotonic()) - self._began,
            why=self._why,
            text=text,
            was_signalled=self._was_signalled(),
            outputs=[each.output() for each in captures] if any(each.written for each in captures) else (),
            left=self._left,
            others=self._others,
        )
        self._work = None
        if not self._untold:
            self._tell_at = time.monotonic() + TOGETHER_S
        self._untold.append(pickle.dumps(over))

    def _tell_news(self, process: Process) -> None:
        if not self._has_news and not any(output.has_news for output in process.outputs):
            return
        if not self._owner.unsent:  # Otherwise the owner reads nothing, and these would be old.
            self._has_news = False
            out, err, *_ = (*(output.end(LIVE_BYTES) for output in process.outputs), NO_OUTPUT, NO_OUTPUT)
            self._tell(News(process.pid, out, err, self._progress.latest))

    def _tell(self, *events: Event) -> None:
        """Tell the owner what happened, after what it has not been told yet."""
        told, self._untold = self._untold, []
        self._owner.send(*told, *map(pickle.dumps, events))


# ---- The Python process that works


def work_in_process(runner: int, desk: Desk, serve: Serve | None, output: int | None) -> NoReturn:
    """Serve in a process that was just forked by the runner, and end it as Python ends a program."""
    code = 1
    try:
        os.setsid()
        tree.die_with(runner)
        tree.prefer_for_oom_kill()
        for number in CHANGED:
            signal.signal(number, signal.SIG_DFL)
        if output is not None:
            redirect_outputs(output)
        if serve is None:
            words = [*interpreter(__name__, "work_in_new_interpreter"), *desk.keep()]
            os.execv(words[0], words)  # noqa: S606 - there is no shell.
        code = serve_until_end(desk, serve)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)


def work_in_new_interpreter(channel: str, note: str) -> None:
    desk = Desk(Channel(socket.socket(fileno=int(channel))), int(note))
    for descriptor in map(int, (channel, note)):
        os.set_inheritable(descriptor, False)
    write_by_line()
    serve, _ = prepared(desk.next() or b"")
    code = serve_until_end(desk, serve)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def serve_until_end(desk: Desk, serve: Serve) -> int:
    def note(*_: object) -> None:
        with suppress(OSError):
            os.write(desk.note, b".")

    # Not SIG_IGN, which programs started by the functions would inherit.
    for number in STOPS:
        signal.signal(number, note)
    fork_plainly()
    serve(desk)
    with suppress(AttributeError):
        threading._shutdown()  # type: ignore[attr-defined]  # Joins threads that are not daemons, as at the end of a program.
    atexit._run_exitfuncs()
    return 0


def fork_plainly() -> None:
    """Give processes that the work forks the signals of plain Python."""
    kept = threading.local()

    def before() -> None:
        # What arrives before the handlers are removed would be lost.
        kept.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, INTERRUPT))

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept.mask)

    def after_in_child() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, INTERRUPT):
            signal.signal(number, signal.SIG_DFL)
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)


def redirect_outputs(output: int) -> None:
    """Send standard output and error of this process to the pipe. Its standard input is empty from the start."""
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)


def write_by_line() -> None:
    """Write each line at once, to be seen while the work runs: Python keeps lines for pipes and files back."""
    sys.stdout, sys.stderr = (
        open(standard, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for standard in (1, 2)
    )
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]  # Who replaces one does not close it.
    faulthandler.enable()  # Crashes in C code leave a traceback in the log.
