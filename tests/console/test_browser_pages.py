"""Every page in Chromium: accessible in both themes, no wider than the window, nothing blocked by the policy."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Dialog, expect

from tasks_app import schedules
from tasks_app.access import audit, tokens
from tasks_app.bulk import Edit, Selection
from tasks_app.core.actors import Actor
from tasks_app.models import DueTime, Scope, Task
from tasks_app.reading import saved_searches
from tasks_app.schedules import PlannedJob, PlannedTask, SchedulePlan
from taskstore.types.batches import Plan
from taskstore.types.command_record import CommandStatus, Output
from taskstore.types.job_record import JobError
from taskstore.types.limits import Rate
from taskstore.types.tasks import NewTask

from ..accessibility import complaints
from ..jobs_store.jobs import begun, enqueued, failed
from ..people import make_user
from . import commands
from .browsing import Person
from .store import ANN, add, change_all, claim, one_of_each_state

pytestmark = [pytest.mark.browser, pytest.mark.once]

WIDTHS = (360, 683, 800, 1366, 1920)  # 683: 1366 at 200 % zoom.
PARTS = 6  # All pages at once would take so long on a busy machine that they count as hanging.
LONG = "very/long/" + "x" * 120
TROUBLE = JobError(type="x" * 100, message="x" * 300, traceback="x" * 300)


@pytest.fixture
def person(chromium, live_server) -> Person:
    """An administrator, who sees every page there is."""
    return Person(chromium, live_server.url, make_user("olaf", "admin"))


@pytest.fixture
def pages(person, settings) -> dict[str, str]:
    """Every kind of page there is, with everything on it that may be there."""
    tasks = one_of_each_state("mail")
    Task.objects.commit(
        owner=ANN,
        adds=[NewTask(group=LONG, data=b'{"to": "kim", "lines": [{"n": 9007199254740993}]}', error=f"no such {LONG}")],
    )
    add("very/short")
    [labelled] = add("mail", labels={"tier": "gold", "region": "eu", "tenant": "x" * 200, "user": "kim"})
    [binary] = add("reports", data=bytes(range(256)), labels={"tenant": "x" * 200})
    [text] = add("reports", data=b"x" * 3_000)
    [ended] = claim("reports", count=1)
    Task.objects.commit(owner=ended.owner, deletes=[ended.id])
    token, _ = tokens.create("<script>" + "x" * 80, Scope.WORK, ["mail/*", LONG])
    kim = make_user("kim" + "m" * 120, "viewer")
    tree = Task.objects.get_queryset().in_group(LONG).get()
    for name in ("x" * 100, "Bad mail"):
        saved_searches.save(User.objects.get(username="olaf"), name, "group:mail error:" + "x" * 200)
    job = PlannedJob(function="x" * 100, queue="x" * 100)
    schedules.put(
        "x" * 100, SchedulePlan(cron="1,2 3,4 5 * MON", zone="America/Argentina/Buenos_Aires", job=job), Actor("o")
    )
    schedules.put("digest", SchedulePlan(cron="@daily", task=PlannedTask(group=LONG)), Actor("olaf"))
    schedules.pause("digest", Actor("olaf" * 30, reason="x" * 300))
    for number, (outcome, _) in enumerate(DueTime.Outcome.choices):
        digest = schedules.schedule("digest")
        past = {"schedule": digest.origin if digest else 0, "due_ms": number, "outcome": outcome, "why": "x" * 200}
        DueTime.objects.create(**past, origin=tree.id)
    add("schedules", data=b"{}", labels={"name": "broken"})
    entry = audit.record(
        Actor(f"token:{'x' * 100}", reason="x" * 300),
        "requeue",
        group=LONG,
        selection="all failed tasks",
        done=2_000_000,
        skipped=3,
        details={"ids": [tree.id] * 200, "skipped": {"claimed by a worker": 3}},
        duration_ms=3_100,
    )
    operation = change_all(
        Edit, Selection(q="-group:nothing"), by="olaf", reason="x" * 300, error="x" * 200, priority=-100
    )
    enqueued(at_ms=-60_000)
    failed("shop." + "x" * 200, queue="y" * 200, args=["x" * 200], error=TROUBLE)
    jobs = {"begun": begun(), "failed": failed(error=TROUBLE, queue="other")}
    later = Plan((NewTask(group=LONG),), then=Plan((NewTask(group="mail"),)))
    batch, _ = Task.objects.create_batch(owner=1, name="x" * 255, then=later, on_failure=later, hold=True)
    Task.objects.create_batch(owner=1, name="Part", adds=[NewTask(group="part")], parent=batch.id)
    Task.objects.set_limits(LONG, running=1, rate=Rate(10_000, 3_600_000), by="x" * 255)
    settings.TASKSTORE_COMMANDS = True
    odd = Output.of(b"x" * 200 + bytes(range(256)), cut_at=300, missing=5_000)
    commands.ended("1_0", CommandStatus.FAILED_ARCHIVE, cmd="y" * 300, worker="z" * 100, exit_code=3, err=odd)
    commands.ended(
        "1_1", CommandStatus.FAILED_COUNT, cmd="y" * 300, worker="z" * 100, exit_code=3, out=odd, err=Output.of(b"x")
    )
    commands.ended("2_0", CommandStatus.NEW, project="p" * 200)
    command_list = commands.running_list("3_0", "4_0", cmd="y" * 300)
    alive = binary if text.id == ended.origin else text
    return {
        "overview": "/console/",
        "tree of groups": "/console/?view=tree&open=very/",
        "nothing found": "/console/?filter=nothing",
        "group": "/console/group?name=mail",
        "tab": "/console/group?name=mail&state=failed",
        "empty group": "/console/group?name=nothing",
        "empty tab": "/console/group?name=reports&state=claimed",
        "long name": f"/console/group?name={LONG}",
        "tree": f"/console/task/{tree.id}",
        "text": f"/console/task/{alive.id}?as=text",
        "hex": f"/console/task/{alive.id}?as=hex",
        "claimed": f"/console/task/{tasks['claimed'].id}",
        "failed": f"/console/task/{tasks['failed'].id}",
        "finished": f"/console/task/{ended.origin}",
        "no task": "/console/task/999999",
        "add": "/console/add?name=mail",
        "import": "/console/import?name=mail",
        "question": "/console/confirm?verb=move&name=mail&all=1",
        "question about many groups": "/console/confirm?verb=edit&q=age:<1h&all=1",
        "operations": "/console/operations",
        "operation": f"/console/operations/{operation.pk}",
        "no more operations": "/console/operations?after=1",
        "pause": "/console/pause?name=mail",
        "batches": "/console/batches",
        "no more batches": "/console/batches?tab=closed",
        "held batches": "/console/batches?tab=held",
        "batch": f"/console/batches/{batch.id}",
        "delete a batch": f"/console/batches/{batch.id}/delete",
        "limits of groups": "/console/limits",
        "limit": f"/console/limits/group?name={LONG}",
        "new limit": "/console/limits/set?name=mail",
        "remove a limit": f"/console/limits/remove?name={LONG}",
        "edit": f"/console/task/{tasks['claimed'].id}/edit",
        "give back": f"/console/task/{tasks['claimed'].id}/give-back",
        "failed tasks": "/console/failed",
        "workers": "/console/workers",
        "worker": f"/console/workers/{tasks['claimed'].owner}",
        "schedules": "/console/schedules",
        "new schedule": "/console/schedules/add",
        "schedule": f"/console/schedules/{'x' * 100}/edit",
        "delete a schedule": "/console/schedules/digest/delete",
        "runs of a schedule": "/console/schedules/digest/runs",
        "jobs": "/console/jobs",
        "filtered jobs": "/console/jobs?function=mail.send&since=24h",
        "times of jobs": "/console/jobs/times",
        "new job": "/console/jobs/add?function=mail.send",
        "undo": f"/console/operations/{operation.pk}/undo",
        **{f"{status} job": f"/console/jobs/{job_id}" for status, job_id in jobs.items()},
        "requeue of a job": f"/console/jobs/{jobs['failed']}/requeue",
        "delete of a job": f"/console/jobs/{jobs['failed']}/delete",
        "commands": "/console/commands",
        "project": "/console/commands/project?project=default",
        "project with a long name": f"/console/commands/project?project={'p' * 200}",
        "running commands": "/console/commands/project?project=default&status=running",
        "failed commands": "/console/commands/project?project=default&status=failed_count",
        "no commands": "/console/commands/project?project=default&status=completed",
        "no project": "/console/commands/project?project=nothing",
        "command": "/console/commands/command?project=default&id=1_1",
        "earlier run": "/console/commands/command?project=default&id=1_0",
        "no command": "/console/commands/command?project=default&id=9_0",
        "command list": f"/console/commands/list/{command_list.id}",
        "no command list": "/console/commands/list/1",
        "reopen": f"/console/commands/list/{command_list.id}/reopen",
        "retry": "/console/commands/confirm?project=default&verb=retry&all=1",
        "submit commands": "/console/commands/submit",
        "audit": "/console/audit",
        "entry of the audit log": f"/console/audit/{entry.id}",
        "audit without entries": "/console/audit?by=nobody",
        "mistake in the audit log": "/console/audit?since=yesterday",
        "search": "/console/search",
        "found": "/console/search?q=-group:nothing",
        "found by label": "/console/search?q=group:mail+-state:failed+label:user",
        "task with labels": f"/console/task/{labelled.id}",
        "not found": "/console/search?q=group:nothing",
        "mistake": "/console/search?q=nonsense",
        "problem": "/console/?sort=nonsense",
        "tokens": "/console/settings",
        "new token": "/console/settings/tokens/add",
        "revoke": f"/console/settings/tokens/{token.pk}/revoke",
        "people": "/console/settings/people",
        "person": f"/console/settings/people/{kim.pk}",
        "limits": "/console/settings/limits",
        "password": "/console/password",
        "no page": "/console/nothing",
    }


# The words of usual length that are broken by the letter.
BROKEN = """
    () => {
        const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), found = [];
        for (let node; (node = walker.nextNode()); ) {
            if (node.parentElement.closest("pre, code, textarea, [hidden], .unseen")) continue;
            for (const word of node.textContent.matchAll(/[^\\s/,._-]+/g)) {
                if (word[0].length < 3 || word[0].length > 12) continue;
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                const lines = new Set([...range.getClientRects()].filter(({ width }) => width).map(({ top }) => top));
                if (lines.size > 1) found.push(word[0]);
            }
        }
        return found;
    }
"""


def too_narrow(person):
    """The windows in which the page scrolls sideways, or breaks words by the letter."""
    for width in WIDTHS:
        person.page.set_viewport_size({"width": width, "height": 800})
        if person.scrolls_sideways():
            yield width
        if broken := person.page.evaluate(BROKEN):
            yield width, broken


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_accessible_and_never_scrolls_sideways(person, pages, part):
    """Together: to load all of them takes longer than the looks."""
    wrong = {}
    for name, path in list(pages.items())[part::PARTS]:
        person.go(path)
        wrong[name] = [*complaints(person.page), *too_narrow(person)]
    assert {name: wrong[name] for name in wrong if wrong[name]} == {}


def test_it_is_accessible_with_dialogs_and_menus_open(person, pages):
    person.go(pages["group"])
    person.rows().first.check()
    for verb in ("Requeue…", "Move…", "Edit…", "Purge…"):
        person.ask(verb)
        assert complaints(person.page) == []
        person.link("Cancel").or_(person.link("Close")).click()
    person.page.get_by_role("button", name="Account of olaf").click()
    expect(person.page.locator("#account")).to_be_visible()
    assert complaints(person.page) == []
    person.button("Saved searches").click()
    expect(person.page.locator("#saved")).to_be_visible()
    assert complaints(person.page) == []


def test_it_is_accessible_before_the_sign_in_and_when_the_store_is_empty(person):
    person.go("/console/")
    expect(person.page.get_by_text("No tasks yet")).to_be_visible()
    assert complaints(person.page) == []
    person.page.context.clear_cookies()
    person.go("/console/login")
    expect(person.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert complaints(person.page) == []


def test_it_keeps_actions_in_reach_on_a_phone(person, pages):
    person.go(pages["group"], width=360)
    person.rows().first.check()
    for verb in ("Requeue…", "Move…", "Purge…"):
        expect(person.button(verb)).to_be_in_viewport()
    person.ask("Purge…")
    expect(person.link("Cancel")).to_be_in_viewport()
    assert not person.scrolls_sideways()


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


LIGHT, DARK = "rgb(246, 247, 249)", "rgb(12, 15, 19)"


@pytest.mark.parametrize(
    ("system", "chosen", "shown"),
    [("light", "system", LIGHT), ("dark", "system", DARK), ("dark", "light", LIGHT), ("light", "dark", DARK)],
)
def test_it_has_the_theme_of_the_system_or_the_chosen_one_without_any_script(person, system, chosen, shown):
    person.page.emulate_media(color_scheme=system)
    # Without a script the first picture is the right one: there is no flash of the other theme.
    person.page.route("**/*.js", lambda route: route.abort())
    person.go("/console/", theme=chosen)
    assert background(person.page) == shown


def test_it_changes_the_theme_at_once_and_keeps_it(person):
    person.go("/console/", theme="light")
    person.page.get_by_role("button", name="Account of olaf").click()
    person.button("Dark").click()
    assert background(person.page) == DARK
    expect(person.button("Dark")).to_have_attribute("aria-pressed", "true")
    person.page.reload()
    assert background(person.page) == DARK


def test_it_moves_nothing_for_people_who_want_no_motion(person):
    add()
    person.go("/console/group?name=mail")
    person.rows().first.check()
    person.ask("Purge…")
    assert person.page.evaluate("document.getAnimations().length") == 0
    assert person.page.evaluate("getComputedStyle(document.querySelector('.button')).transitionDuration") == "0s"


def test_it_runs_nothing_that_is_written_in_names_and_data(person):
    alarms: list[str] = []

    def note(dialog: Dialog) -> None:
        alarms.append(dialog.message)
        dialog.dismiss()

    person.page.on("dialog", note)
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>"
    [task] = add(hostile, data=hostile.encode(), labels={"a": hostile})
    for path in (
        "/console/",
        "/console/?filter=script",
        f"/console/task/{task.id}",
        f"/console/task/{task.id}?as=text",
    ):
        person.go(path)
        expect(person.page.get_by_text("<script>alert(1)</script>").first).to_be_visible()
    person.go("/console/")
    person.link(hostile).click()
    expect(person.page.get_by_role("heading", level=1)).to_have_text(hostile)
    person.rows().first.check()
    person.ask("Purge…")
    assert alarms == []


def test_it_shows_ten_megabytes_without_blocking(person):
    [task] = add(data=b'{"x": "' + b"x" * 10_000_000 + b'"}')
    person.go(f"/console/task/{task.id}")
    expect(person.page.get_by_text("Download the data to see all 10 MB")).to_be_visible()
    longest = person.page.evaluate(
        "Math.max(0, ...performance.getEntriesByType('longtask').map(task => task.duration))"
    )
    assert longest < 300
