"""The API sits at the root, and no path ends with a slash (contract.md section 3)."""

from django.urls import path, register_converter

from . import audit, commands, files, groups, health, jobs, operations, schedules, schema, search, views


class GroupName:
    """All that follows, with any character in it."""

    regex = "(?s:.+)"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(GroupName, "group_name")

app_name = "rest_api"

urlpatterns = [
    # /group: what there is
    path("groups", views.Groups.as_view(), name="groups"),
    path("group", views.GroupByQuery.as_view(), name="group_by_query"),
    path("group/<group_name:name>", views.Group.as_view(), name="group"),
    path("stats", views.Stats.as_view(), name="stats"),
    path("groups/<group_name:name>/pause", groups.Pause.as_view(), name="pause"),
    path("groups/<group_name:name>/resume", groups.Resume.as_view(), name="resume"),
    # /task: by id
    path("task/<str:id>", views.OneTask.as_view(), name="task"),
    path("tasks", views.TasksByBody.as_view(), name="tasks_by_body"),
    path("tasks/<str:ids>", views.TasksByPath.as_view(), name="tasks_by_path"),
    path("history/<str:id>", views.History.as_view(), name="history"),
    path("search", search.Search.as_view(), name="search"),
    path("export", files.ExportTasks.as_view(), name="export"),
    # What workers do
    path("update", views.Update.as_view(), name="update"),
    path("import", files.ImportTasks.as_view(), name="import"),
    path("claim", views.ClaimTasks.as_view(), name="claim"),
    path("clients", groups.Clients.as_view(), name="clients"),
    path("clients/<str:clientid>", groups.Heartbeat.as_view(), name="heartbeat"),
    # Functions that are run
    path("jobs", jobs.Jobs.as_view(), name="jobs"),
    path("jobs/<str:id>", jobs.OneJob.as_view(), name="job"),
    path("jobs/<str:id>/requeue", jobs.Requeue.as_view(), name="requeue_job"),
    # Command lines for shells
    path("commands", commands.Projects.as_view(), name="command_projects"),
    path("commands/<str:project>", commands.Project.as_view(), name="command_project"),
    path("commands/<str:project>/lists", commands.Lists.as_view(), name="command_lists"),
    path("commands/<str:project>/lists/<str:task>", commands.OneList.as_view(), name="command_list"),
    path("commands/<str:project>/lists/<str:task>/reopen", commands.Reopen.as_view(), name="reopen_command_list"),
    path("commands/<str:project>/results", commands.Results.as_view(), name="command_results"),
    path("commands/<str:project>/command/<str:id>", commands.OneCommand.as_view(), name="command"),
    path("commands/<str:project>/retry", commands.Retry.as_view(), name="retry_commands"),
    path("commands/<str:project>/stash", commands.Stash.as_view(), name="stash_commands"),
    path("commands/<str:project>/unstash", commands.Unstash.as_view(), name="unstash_commands"),
    path("commands/<str:project>/archive", commands.Archive.as_view(), name="archive_commands"),
    path("commands/<str:project>/export", commands.ExportProject.as_view(), name="export_commands"),
    path("commands/<str:project>/import", commands.ImportProject.as_view(), name="import_commands"),
    # What comes due
    path("schedules", schedules.Schedules.as_view(), name="schedules"),
    path("schedules/<str:name>", schedules.OneSchedule.as_view(), name="schedule"),
    path("schedules/<str:name>/pause", schedules.Pause.as_view(), name="pause_schedule"),
    path("schedules/<str:name>/resume", schedules.Resume.as_view(), name="resume_schedule"),
    path("schedules/<str:name>/run", schedules.RunNow.as_view(), name="run_schedule"),
    # What people did
    path("audit", audit.Audit.as_view(), name="audit"),
    # Many tasks at once
    path("bulk/preview", operations.Preview.as_view(), name="bulk_preview"),
    path("bulk", operations.Bulk.as_view(), name="bulk"),
    path("operations", operations.Operations.as_view(), name="operations"),
    path("operations/<str:id>", operations.OneOperation.as_view(), name="operation"),
    path("operations/<str:id>/items", operations.Items.as_view(), name="operation_items"),
    path("operations/<str:id>/cancel", operations.Cancel.as_view(), name="cancel_operation"),
    path("operations/<str:id>/undo", operations.Undo.as_view(), name="undo_operation"),
    # For those who watch over the server
    path("healthz", health.Healthz.as_view(), name="healthz"),
    path("readyz", health.Readyz.as_view(), name="readyz"),
    path("metrics", health.Metrics.as_view(), name="metrics"),
    # What the API has
    path("schema", schema.Schema.as_view(), name="schema"),
    path("schema/ui", schema.SchemaPage.as_view(), name="schema_page"),
]
