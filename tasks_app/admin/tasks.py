"""The admin of tasks: find, add, change and delete them. A change replaces a task with a successor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.contrib.admin.widgets import AdminSplitDateTime, AdminTextareaWidget, AdminTextInputWidget
from django.core.exceptions import PermissionDenied
from django.db.models import BigIntegerField, QuerySet, Value
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html

from taskstore.errors import CommitRefused, Forbidden, StoreBusy, StoreUnavailable
from taskstore.types.scalars import whole
from taskstore.types.tasks import PLAIN, Ending, Refusal, State

from .. import bulk
from ..access import audit
from ..access.policy import Action, actor_of, may
from ..core.actors import Actor
from ..forms import BASE64, NOBODY, TaskForm, is_editable, written
from ..managers import TaskQuerySet
from ..models import EndedTask, Task
from ..reading import history
from .keyset import KeyedAdmin, has_console, moment

ERROR_SHOWN = 80  # Characters, in the list.
DATA = ("content", "encoding", "data_type")
REST = ("available_at", *PLAIN, "labels", "error")
FACTS = ("id", "unique_key", "state", "held_by", "available", "claims", "origin", "created", "made")
WIDGETS = {
    **dict.fromkeys(("group", "data_type", "reason"), AdminTextInputWidget()),
    "content": AdminTextareaWidget(),
    **dict.fromkeys(("labels", "error"), AdminTextareaWidget({"rows": 3})),
    "available_at": AdminSplitDateTime(),
}
ENDS_LEASE = "A worker holds this task. Saving ends its lease, and the worker's result will be rejected."


# Errors after which a person can only retry, or view the present task.
REFUSALS = (CommitRefused, StoreBusy, StoreUnavailable)


class AdminTaskForm(TaskForm):
    """The form of a task with the admin's widgets."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, widget in WIDGETS.items():
            if name in self.fields:
                self.fields[name].widget = widget


class StateFilter(admin.SimpleListFilter):
    """Filters by state within a group: no index has the states of all groups."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in State] if asked_group(request) else []

    def queryset(self, request: HttpRequest, queryset: Any) -> TaskQuerySet:
        state = asked_state(request)
        chosen: TaskQuerySet = queryset if state is None else queryset.in_state(state, Task.objects.now_ms())
        return chosen


def _confirmed_in_the_console(name: str, action: type[bulk.Action]) -> Callable[..., HttpResponse]:
    """Return an action of the list that leads to the console's confirmation, which shows its effect and can undo it."""

    @admin.action(
        description=f"{action.words.label} selected tasks...", permissions=["delete" if action.ends_tasks else "change"]
    )
    def act(shown: KeyedAdmin, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse:
        return redirect(confirmation(name, id=list(dict.fromkeys(request.POST.getlist(ACTION_CHECKBOX_NAME)))))

    act.__name__ = name
    return act


def confirmation(verb: str, **which: object) -> str:
    """Return the address of the console's confirmation for these tasks."""
    return f"{reverse('tasks_app:confirm')}?{urlencode({'verb': verb, **which}, doseq=True)}"


@admin.register(Task)
class TaskAdmin(KeyedAdmin):
    form = AdminTaskForm
    actions = [_confirmed_in_the_console(name, action) for name, action in bulk.ACTIONS.items()]
    list_display = ("id", "group_link", "state", "available", "held_by", "priority", "claims", "error_start")
    list_filter = (StateFilter,)
    search_fields = ("id",)  # Shows the search box; get_search_results does the search.
    search_help_text = "Enter a task's id (current or earlier), or the exact name of a group."
    allowed_lookups = ("group", "state")
    readonly_fields = (*FACTS, "shown_data")
    available = moment("available_at_ms", "available from")
    created = moment("created_at_ms", "created")
    made = moment("made_at_ms", "id assigned")

    # ---- Rights

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.OPERATE)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Action.OPERATE)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Action.OPERATE) and has_console()

    # ---- The list

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        # Django 6.1 says where the actions are shown, and earlier versions do not.
        where = {} if action_location is None else {"action_location": action_location}
        actions: dict[str, Any] = super().get_actions(request, **where)
        actions.pop("delete_selected", None)  # Django's own action would bypass the store.
        return actions if has_console() else {}

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the order of an index: in a group the longest available first, otherwise and for failed the newest."""
        in_group = asked_group(request) and asked_state(request) not in (State.RETRYING, State.FAILED)
        return ("available_at_ms", "id") if in_group else ("-id",)

    def for_list(self, rows: QuerySet[Task]) -> QuerySet[Task]:
        return rows.defer("data", "data_type", "labels", "error").annotate(
            error_start=Left("error", ERROR_SHOWN),
            now_ms=Value(Task.objects.now_ms(), BigIntegerField()),  # One time for all rows.
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Task], search_term: str
    ) -> tuple[QuerySet[Task], bool]:
        task_id = whole(search_term.strip())
        if task_id is not None:
            return queryset.filter(pk=self._living_id(request, task_id)), False
        return (queryset.filter(group=search_term) if search_term else queryset), False

    def _living_id(self, request: HttpRequest, task_id: int) -> int:
        """The id that the task has now. Says so when it is another one, when the task has ended, or is not known."""
        chain = history.chain_of(task_id)
        living = chain and chain.living
        if living and living.id != task_id:
            self.message_user(request, f"Task {task_id} is now {living.id}.", messages.INFO)
        if chain and not living:
            self.message_user(request, link_to_trail(chain.origin, f"Task {task_id} has ended."), messages.WARNING)
        if chain is None and (doubt := history.doubt_about(task_id)):
            self.message_user(request, f"Task {task_id} does not exist{doubt}.", messages.WARNING)
        return living.id if living else task_id

    @admin.display(description="group")
    def group_link(self, task: Task) -> str:
        return format_html('<a href="?{}">{}</a>', urlencode({"group": task.group}), task.group)

    @admin.display
    def state(self, task: Task) -> str:
        return str(task.state(getattr(task, "now_ms", None) or Task.objects.now_ms()))

    @admin.display(description="leased to")
    def held_by(self, task: Task) -> str:
        return str(task.owner) if task.leased else "none"

    @admin.display(description="unique key")
    def unique_key(self, task: Task) -> str:
        return task.unique or "none"

    @admin.display(description="error")
    def error_start(self, task: Any) -> str:
        return str(task.error_start)

    # ---- A task

    @admin.display(description="data")
    def shown_data(self, task: Task) -> str:
        data = bytes(task.data)
        if not is_editable(data):
            return f"{len(data)} bytes: too large to show here"
        encoding, text = written(data)
        return f"{BASE64}: {text}" if encoding == BASE64 else text

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        may_see_data = may(request.user, Action.SEE_PAYLOADS)
        return partial(self.form, may_see_data=may_see_data, refusal=getattr(request, "task_store_refusal", ""))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return [(None, {"fields": ("group", *DATA, *REST)})]
        facts = ("Current values", {"fields": FACTS})
        shown_data = ("shown_data",) if may(request.user, Action.SEE_PAYLOADS) else ()
        if not self.has_change_permission(request, obj):
            return [facts, ("Content", {"fields": ("group", *shown_data, *REST[1:])})]
        data = DATA if shown_data and is_editable(obj.data) else shown_data
        changes: dict[str, Any] = {"fields": ("group", *data, *REST, "reason")}
        if obj.state(Task.objects.now_ms()) is State.CLAIMED:
            changes["description"] = ENDS_LEASE
        return [("Changes", changes), facts]

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        chain = history.chain_of(whole(unquote(object_id)) or 0)
        return redirect(trail_url(chain.origin) if chain else "admin:tasks_app_task_changelist")

    # ---- Changes, all through the store

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        try:
            return super().change_view(request, object_id, form_url, extra_context)
        except REFUSALS as refused:
            return self._show_again(request, object_id, refused)

    def _show_again(self, request: HttpRequest, object_id: str, refused: Exception) -> HttpResponse:
        """Show the typed values again, for the present task, which saving again would change."""
        task_id = whole(unquote(object_id)) or 0
        chain = history.chain_of(task_id)
        if not (chain and chain.living):
            gone = f"task {object_id} no longer exists{'' if chain else history.doubt_about(task_id)}"
            self.message_user(request, f"Nothing was changed: {gone}.", messages.ERROR)
            return redirect("admin:tasks_app_task_changelist")
        now = chain.living.id
        changed = f"the task has changed in the meantime; {object_id} is now {now}. Save again to change {now}"
        reason = changed if isinstance(refused, CommitRefused) else str(refused)
        request.task_store_refusal = f"Nothing was changed: {reason}."  # type: ignore[attr-defined]
        return self.change_view(request, str(now), form_url=task_url(now))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        asked, actor = form.operation, actor_of(request.user, form.cleaned_data.get("reason", ""))
        replaced = form.replaces.id if form.replaces else 0
        changes = {"updates" if replaced else "adds": [asked]}
        try:
            [task] = Task.objects.commit(
                owner=NOBODY, **changes, scope=actor.scope, operator=actor.operator(Ending.CHANGED)
            )
        except Forbidden as forbidden:  # Django has a page for its own.
            raise PermissionDenied(str(forbidden)) from None
        if replaced:
            self._tell(request, actor, "edit", task, f"Task {replaced} is now {task.id}.", replaced=replaced)
        else:
            self._tell(request, actor, "add", task, f"Added task {task.id}.")
        # The redirect to the next page is about the new task.
        obj.id, obj.group = task.id, task.group

    def _tell(self, request: HttpRequest, actor: Actor, action: str, task: Task, text: str, replaced: int = 0) -> None:
        audit.record(
            actor,
            action,
            group=task.group,
            selection=f"task {replaced or task.id}",
            done=1,
            details={"ids": [replaced, task.id] if replaced else [task.id]},
        )
        self.message_user(request, format_html('{} <a href="{}">View it</a>.', text, task_url(task.id)))

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return self._to_next_page(request, obj)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return self._to_next_page(request, obj)

    def _to_next_page(self, request: HttpRequest, task: Task) -> HttpResponse:
        if "_continue" in request.POST:
            return redirect(task_url(task.id))
        if "_addanother" in request.POST:
            return redirect("admin:tasks_app_task_add")
        return self.response_post_save_change(request, task)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        if not self.has_delete_permission(request):
            raise PermissionDenied
        return redirect(confirmation("purge", id=object_id, task=object_id))

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        task_id = whole(unquote(object_id))
        if task_id is not None and request.method == "POST":
            raise CommitRefused(Refusal(changes=(task_id,)))
        if task_id is not None and (living := self._living_id(request, task_id)) != task_id:
            return redirect(task_url(living))
        self.message_user(request, f"Task {object_id} does not exist.", messages.WARNING)
        return redirect("admin:tasks_app_task_changelist")


@admin.register(EndedTask)
class EndedTaskAdmin(KeyedAdmin):
    """The history of tasks, read-only."""

    list_display = ("id", "group", "ending", "successor", "ended", "by", "reason")
    allowed_lookups = ("origin",)
    available = moment("available_at_ms", "available from")
    created = moment("created_at_ms", "created")
    made = moment("made_at_ms", "id assigned")
    ended = moment("ended_at_ms", "ended")
    fields = (
        *("id", "group", "origin", "owner", "leased", "priority", "claims", "error", "created", "made"),
        *("made_by_commit", "available", "ending", "successor", "ended", "by", "reason", "ended_by_commit"),
    )

    @admin.display(boolean=True)
    def leased(self, task: EndedTask) -> bool:
        return task.leased

    @admin.display
    def by(self, task: EndedTask) -> str:
        return task.operator or f"client {task.ended_by}"


def asked_group(request: HttpRequest) -> str:
    """Return the group of the listed tasks; empty for all."""
    term = request.GET.get("q", "")
    return request.GET.get("group", "") or (term if whole(term.strip()) is None else "")


def asked_state(request: HttpRequest) -> State | None:
    """Return the requested state. Raises IncorrectLookupParameters for an unknown one; then all tasks are shown."""
    if "state" not in request.GET or not asked_group(request):
        return None
    try:
        return State(request.GET["state"])
    except ValueError:
        raise IncorrectLookupParameters from None


def task_url(task_id: int) -> str:
    return reverse("admin:tasks_app_task_change", args=[task_id])


def trail_url(origin: int) -> str:
    return f"{reverse('admin:tasks_app_endedtask_changelist')}?origin={origin}"


def link_to_trail(origin: int, text: str) -> str:
    return format_html('{} <a href="{}">View its history</a>.', text, trail_url(origin))
