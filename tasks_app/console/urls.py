"""The console, page by page, under /console/."""

from django.urls import path

from . import (
    accounts,
    adding,
    changes,
    charts,
    editing,
    failed,
    flow,
    giving_back,
    groups,
    limits,
    operations,
    overview,
    pausing,
    searching,
    signing_in,
    tasks,
    tokens,
    workers,
)

app_name = "console"

urlpatterns = [
    # Who is there
    path("login", signing_in.login, name="login"),
    path("logout", signing_in.logout, name="logout"),
    path("password", signing_in.password, name="password"),
    path("theme", signing_in.theme, name="theme"),
    # What there is
    path("", overview.overview, name="overview"),
    path("attention", overview.attention, name="attention"),
    path("flow", flow.flow, name="flow"),
    path("group", groups.group, name="group"),
    path("group/facts", groups.facts, name="facts"),
    path("failed", failed.failed, name="failed"),
    path("workers", workers.workers, name="workers"),
    path("operations", operations.operations, name="operations"),
    path("operations/mine", operations.mine, name="mine"),
    path("operations/<int:operation_id>", operations.operation, name="operation"),
    path("search", searching.search, name="search"),
    path("search/suggestions", searching.suggestions, name="suggestions"),
    path("rates", charts.rates, name="rates"),
    path("task/<int:task_id>", tasks.task, name="task"),
    path("task/<int:task_id>/data", tasks.data, name="data"),
    # What a person does to it
    path("add", adding.add, name="add"),
    path("pause", pausing.pause, name="pause"),
    path("resume", pausing.resume, name="resume"),
    path("task/<int:task_id>/give-back", giving_back.give_back, name="give_back"),
    path("task/<int:task_id>/edit", editing.edit, name="edit"),
    path("confirm", changes.confirm, name="confirm"),
    path("requeue", changes.requeue, name="requeue"),
    path("move", changes.move, name="move"),
    path("edit", changes.edit, name="edit_many"),
    path("purge", changes.purge, name="purge"),
    path("operations/<int:operation_id>/cancel", operations.cancel, name="cancel"),
    path("operations/<int:operation_id>/undo", operations.undo, name="undo"),
    # Who gets in
    path("settings", tokens.tokens, name="settings"),
    path("settings/tokens/add", tokens.add, name="add_token"),
    path("settings/tokens/<int:token_id>/revoke", tokens.revoke, name="revoke_token"),
    path("settings/people", accounts.people, name="people"),
    path("settings/people/add", accounts.add, name="add_person"),
    path("settings/people/<int:user_id>", accounts.person, name="person"),
    path("settings/people/<int:user_id>/close", accounts.close, name="close_account"),
    path("settings/people/<int:user_id>/open", accounts.open_again, name="open_account"),
    path("settings/people/<int:user_id>/password", accounts.reset_password, name="reset_password"),
    path("settings/limits", limits.limits, name="limits"),
]
