"""Any projects that files can hold."""

from hypothesis import strategies as st
from msgspec.structs import replace

from taskstore.commands.files import ProjectContent
from taskstore.types.checks import MOST
from taskstore.types.command_record import (
    BEFORE_A_RUN,
    ID,
    LONGEST_ID,
    MAYBE_WITHOUT_RUN,
    OF_LISTS,
    Command,
    CommandList,
    CommandStatus,
    Output,
    Run,
    members_of,
)

NUMBERS = st.integers(0, MOST)
IDS = st.from_regex(ID, fullmatch=True).filter(lambda name: len(name) <= LONGEST_ID)
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), min_size=1, max_size=50)
NOT_UTF8 = st.binary(min_size=1, max_size=50).filter(lambda line: line.strip() and not {*line} & {*b"\n\r\0"})
CMDS = st.one_of(LINES.filter(str.strip).map(str.encode), NOT_UTF8)
WORKERS = st.text(st.characters(categories=["L", "N", "P"], exclude_characters="/"), min_size=1, max_size=30)
OUTPUTS = st.binary(max_size=100).map(Output.of)


def run(worker, started, ended, out, err):
    """Files tell how long it took in whole seconds."""
    duration_ms = min(max(0, ended - started) * 1_000, MOST)
    return Run(worker=worker, started=started, ended=ended, duration_ms=duration_ms, out=out, err=err)


RUNS = st.builds(run, LINES, NUMBERS, NUMBERS, OUTPUTS, OUTPUTS)
UNRUN = st.builds(
    lambda cmd, **others: Command(**members_of(cmd), **others),
    id=IDS,
    cmd=CMDS,
    created=NUMBERS,
    until=NUMBERS,
    expected_duration=NUMBERS,
    max_fails=NUMBERS,
    fails=NUMBERS,
)
RUN = st.builds(replace, UNRUN, run=RUNS)


def in_status(status):
    """Commands as they are in a status."""
    if status in BEFORE_A_RUN:
        return UNRUN
    return st.one_of(UNRUN, RUN) if status in MAYBE_WITHOUT_RUN else RUN


def lists(status):
    def made(name, commands, worker, started, finished):
        whole = CommandList(name=str(name), commands=tuple(sorted(commands, key=lambda command: command.id)))
        return replace(whole, worker=worker, started=started, finished=finished) if worker else whole

    worker = WORKERS if status is CommandStatus.CLOSED else st.just("")
    commands = st.lists(in_status(status), min_size=1, max_size=3)
    return st.builds(made, NUMBERS, commands, worker, NUMBERS, st.integers(1, MOST))


ENTRIES = st.sampled_from([status for status in CommandStatus if status is not CommandStatus.RUNNING]).flatmap(
    lambda status: st.tuples(st.just(status), lists(status) if status in OF_LISTS else in_status(status))
)


def is_a_project(entries):
    """Every id and every name of a list that is not closed is there once."""
    ids = [command.id for _, each in entries for command in getattr(each, "commands", [each])]
    names = [each.directory for _, each in entries if isinstance(each, CommandList)]
    return len(set(ids)) == len(ids) and len(set(names)) == len(names)


def content_of(entries):
    """In the order in which they are read."""
    order = list(CommandStatus)
    found = sorted(entries, key=lambda entry: (order.index(entry[0]), getattr(entry[1], "id", "")))
    return ProjectContent(
        commands=tuple(entry for entry in found if isinstance(entry[1], Command)),
        lists=tuple(
            sorted(
                (entry for entry in found if isinstance(entry[1], CommandList)),
                key=lambda entry: (order.index(entry[0]), entry[1].directory),
            )
        ),
    )


PROJECTS = st.lists(ENTRIES, min_size=1, max_size=6).filter(is_a_project).map(content_of)
