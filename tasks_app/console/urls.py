"""The console, page by page, under /console/."""

from django.urls import path

from . import adding, changes, groups, overview, signing_in, tasks

app_name = "console"

urlpatterns = [
    # Who is there
    path("login", signing_in.login, name="login"),
    path("logout", signing_in.logout, name="logout"),
    path("password", signing_in.password, name="password"),
    path("theme", signing_in.theme, name="theme"),
    # What there is
    path("", overview.overview, name="overview"),
    path("group", groups.group, name="group"),
    path("group/facts", groups.facts, name="facts"),
    path("task", tasks.find, name="find"),
    path("task/<int:task_id>", tasks.task, name="task"),
    path("task/<int:task_id>/data", tasks.data, name="data"),
    # What a person does to it
    path("add", adding.add, name="add"),
    path("confirm", changes.confirm, name="confirm"),
    path("requeue", changes.requeue, name="requeue"),
    path("move", changes.move, name="move"),
    path("purge", changes.purge, name="purge"),
]
