"""Whoever follows "Next" comes to the end of every list, and meets each row once, by every door."""

import html
import json
import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from django.utils import timezone

from lab.testing import PROJECT
from tasks_app.models import AuditEntry, BulkItem, BulkOperation, Scope, Task
from taskstore.endpoints import ENDPOINTS
from taskstore.types.command_record import CommandList, CommandStatus, new_command_task, new_list_task
from taskstore.types.job_record import FINISHED, JobRecord, new_task
from taskstore.types.tasks import NOBODY, NewTask

from .console.commands import command_of
from .people import make_user, signed_in
from .rest_api.api import Api

pytestmark = pytest.mark.django_db
ROWS = 101  # More than a page of any list.


def tasks():
    Task.objects.commit(owner=NOBODY, adds=[NewTask(group="mail")] * ROWS)


def failing():
    Task.objects.commit(owner=NOBODY, adds=[NewTask(group="mail", error="no")] * ROWS)


def groups():
    Task.objects.commit(owner=NOBODY, adds=[NewTask(group=f"group-{number}") for number in range(ROWS)])


def jobs():
    Task.objects.commit(owner=NOBODY, adds=[new_task(JobRecord(function="mail.send"))] * ROWS)


def batches():
    for _ in range(ROWS):
        Task.objects.create_batch(owner=NOBODY, hold=True)


def results():
    commands = [command_of(f"{number}_0") for number in range(ROWS)]
    Task.objects.commit(
        owner=NOBODY, adds=[new_command_task("p", each, CommandStatus.FAILED_TIME) for each in commands]
    )


def lists():
    made = [CommandList(name=str(number), commands=(command_of(f"{number}_0"),)) for number in range(ROWS)]
    Task.objects.commit(owner=NOBODY, adds=[new_list_task("p", each) for each in made])


def entries():
    entry = {
        "actor": "ann",
        "action": "pause",
        "at": timezone.now(),
        "details": {},
        "done": 1,
        "skipped": 0,
        "duration_ms": 0,
    }
    AuditEntry.objects.bulk_create([AuditEntry(**entry) for _ in range(ROWS)])


def operations():
    made = {
        "verb": "purge",
        "parameters": {},
        "selection": {"scope": None},
        "in_words": "all",
        "by": "ann",
        "expected": 1,
        "began_at_ms": 1,
    }
    for _ in range(ROWS):
        BulkOperation.objects.create(**made, state=BulkOperation.State.DONE)


def skipped():
    operations()
    number = BulkOperation.objects.earliest("pk").pk
    left = {"operation": number, "outcome": BulkItem.Outcome.SKIPPED, "why": "already ready"}
    BulkItem.objects.bulk_create([BulkItem(**left, origin=origin, task=origin) for origin in range(1, ROWS + 1)])


def ended():
    tasks()
    Task.objects.commit(owner=NOBODY, deletes=list(Task.objects.values_list("pk", flat=True)))


# By the address of the list: what fills it, and how its rows lead to what they are about.
PAGES = {
    "/console/": (groups, r'href="/console/group\?name=(group-\d+)"'),
    "/console/group?name=mail": (tasks, r'href="/console/task/(\d+)"'),
    "/console/group?name=mail&state=ready": (tasks, r'href="/console/task/(\d+)"'),
    "/console/group?name=mail&state=retrying": (failing, r'href="/console/task/(\d+)"'),
    "/console/search?q=group:mail": (tasks, r'href="/console/task/(\d+)"'),
    "/console/jobs": (jobs, r'href="/console/jobs/(\d+)"'),
    "/console/jobs?status=pending": (jobs, r'href="/console/jobs/(\d+)"'),
    "/console/batches": (batches, r'href="/console/batches/(\d+)"'),
    "/console/batches?tab=open": (batches, r'href="/console/batches/(\d+)"'),
    "/console/commands/project?project=p&status=failed_time": (results, r"id=(\d+)_0"),
    "/console/commands/project?project=p&status=open": (lists, r'href="/console/commands/list/(\d+)"'),
    "/console/audit": (entries, r'href="/console/audit/(\d+)"'),
    "/console/operations": (operations, r'href="/console/operations/(\d+)"'),
    "/console/operations/{operation}": (skipped, r'href="/console/task/(\d+)"'),
    "/admin/tasks_app/task/": (tasks, r'href="/admin/tasks_app/task/(\d+)/change/'),
    "/admin/tasks_app/endedtask/": (ended, r'href="/admin/tasks_app/endedtask/(\d+)/change/'),
}


@pytest.mark.parametrize("address", PAGES)
def test_next_leads_to_every_row_of_a_page_once(address):
    fill, row = PAGES[address]
    fill()
    browser = signed_in(make_user("ada", "admin"))
    first = BulkOperation.objects.order_by("pk").values_list("pk", flat=True).first()
    url, visited = address.format(operation=first), 0
    seen = list[str]()
    path = url.partition("?")[0]
    while url:
        answer = browser.get(url)
        assert answer.status_code == 200, url
        shown = answer.content.decode()
        seen += dict.fromkeys(re.findall(row, html.unescape(shown)))
        visited += 1
        following = re.findall(r'href="([^"]*)" rel="next"', shown)
        assert len(following) <= 1
        url = html.unescape(following[0]) if following else ""
        url = path + url if url.startswith("?") else url
    assert len(seen) == len(set(seen)) == ROWS
    assert visited > 1


def everything():
    for fill in (tasks, failing, groups, jobs, batches, results, lists, entries, skipped):
        fill()
    records = [replace(new_task(JobRecord(function="mail.send")), group=f"jobs/default/{end}") for end in FINISHED]
    Task.objects.commit(owner=NOBODY, adds=[replace(each, error="no") for each in records] * ROWS)


# What somebody may write into the fields of filters.
WRITTEN = {
    "q": "group:mail", "filter": "group", "queue": "default", "function": "mail.send", "label": "function:mail.send",
    "worker": "7", "since": "24h", "by": "ann", "action": "pause", "group": "mail", "until": "now-1h", "reason": "x",
    "name": "mail", "project": "p", "state": "ready", "status": "failed", "tab": "open",
    "text": "echo",
}  # fmt: skip
STARTS = {address.partition("?")[0] for address in PAGES if address.startswith("/console/")} | {
    "/console/failed",
    "/console/workers",
    "/console/schedules",
    "/console/limits",
    "/console/commands",
    "/console/settings",
}
MOST_OF_A_LIST = 40  # Pages that are visited.
LINK = re.compile(r'<a\b[^>]*\bhref="([^"]*)"')
WAYS = ("_pager.html", 'class="tabs"', 'class="pager"', "sieve")


def test_each_tab_filter_and_pager_of_every_list_leads_somewhere(settings):
    settings.TASKSTORE_COMMANDS = True
    everything()
    browser = signed_in(make_user("ada", "admin"))
    first = BulkOperation.objects.order_by("pk").values_list("pk", flat=True).first()
    rendered = set[str]()
    for start in sorted(STARTS):
        start = start.format(operation=first)
        queries = {"/console/group": "?name=mail", "/console/search": "?q=group:mail"}
        queries["/console/commands/project"] = "?project=p"
        waiting, seen = [start + queries.get(start, "")], set[str]()
        while waiting and len(seen) < MOST_OF_A_LIST:
            url = waiting.pop(0)
            if url in seen:
                continue
            seen.add(url)
            answer = browser.get(url)
            assert answer.status_code in (200, 302), f"{url}: {answer.status_code}"
            rendered.update(template.name for template in answer.templates if template.name)
            shown = answer.content.decode()
            links = [html.unescape(found) for found in LINK.findall(shown)]
            links += [f"?{urlencode(fields)}" for fields in fields_of(shown, start)]
            same = [start + link if link.startswith("?") else link for link in links]
            waiting += [link for link in same if link.partition("?")[0] == start and link not in seen]
    texts = {
        f"tasks_app/{file.name}": file.read_text() for file in (PROJECT / "templates" / "tasks_app").glob("*.html")
    }
    assert {name for name, text in texts.items() if any(way in text for way in WAYS)} - rendered == set()


def fields_of(shown, start):
    """Yield what the forms of a page that lead back to it send: all fields together, and each alone."""
    for form in re.findall(rf'<form\b[^>]*action="{re.escape(start)}"[^>]*>.*?</form>', shown, re.DOTALL):
        names = dict.fromkeys(re.findall(r'<(?:input|select)\b[^>]*\bname="([^"]+)"', form))
        hidden = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))
        known = WRITTEN | ({"since": "now-7d"} if start == "/console/audit" else {})
        written = {name: html.unescape(hidden.get(name, "")) or known[name] for name in names}
        yield written
        always = {name: html.unescape(value) for name, value in hidden.items()}
        yield from (always | {name: value} for name, value in written.items())


# By the endpoint with `after`: what fills it.
LISTS = {
    "audit": ("/audit?", entries),
    "batches": ("/batches?", batches),
    "command_lists": ("/commands/p/lists?", lists),
    "command_results": ("/commands/p/results?", results),
    "operation_items": ("/operations/{operation}/items?outcome=skipped&", skipped),
    "jobs": ("/jobs?", jobs),
    "operations": ("/operations?", operations),
    "search": ("/search?q=group:mail&", tasks),
}


def test_every_endpoint_with_pages_is_walked():
    paged = {row.name for row in ENDPOINTS if {"after", "limit"} <= {*row.in_query}}
    assert paged == {*LISTS}


@pytest.mark.parametrize("name", LISTS)
def test_after_leads_to_every_row_of_the_api_once(name):
    address, fill = LISTS[name]
    fill()
    api = Api(Scope.COMMANDS if "command" in name else Scope.OPERATE)
    first = BulkOperation.objects.order_by("pk").values_list("pk", flat=True).first()
    url = f"{address.format(operation=first)}limit=40"
    seen = list[str]()
    after: str | None = ""
    while after is not None:
        status, page = api.get(f"{url}&after={after}" if after else url)
        assert status == 200, page
        [found] = [value for value in page.values() if isinstance(value, list)]
        seen += [json.dumps(row) for row in found]
        after = page.get("after")
    assert len(seen) == len(set(seen)) == ROWS
