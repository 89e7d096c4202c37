"""The console, page by page, under /console/."""

from django.urls import path

from . import (
    adding,
    auditing,
    changes,
    charts,
    editing,
    failed,
    flow,
    giving_back,
    groups,
    overview,
    pausing,
    searching,
    signing_in,
    tasks,
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
    path("audit", auditing.audit, name="audit"),
    path("audit/export", auditing.export, name="audit_export"),
    path("audit/<int:entry_id>", auditing.entry, name="audit_entry"),
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
    path("purge", changes.purge, name="purge"),
]
