"""The pages of the console: `path("console/", include("tasks_app.console.urls"))`, or below another prefix."""

from django.urls import path

from taskstore.types.bulk import ACTIONS

from . import (
    accounts,
    batches,
    command_changes,
    command_lists,
    files,
    group_limits,
    group_table,
    groups,
    jobs,
    operations,
    overview,
    pages,
    schedules,
    search,
    server_settings,
    sign_in,
    tasks,
    tokens,
)

app_name = "tasks_app"

urlpatterns = [
    # Sign-in
    path("login", sign_in.login, name="login"),
    path("logout", sign_in.logout, name="logout"),
    path("logout/everywhere", sign_in.logout_everywhere, name="logout_everywhere"),
    path("password", sign_in.password, name="password"),
    path("theme", sign_in.theme, name="theme"),
    # Pages that only read
    path("", overview.overview, name="overview"),
    path("live", pages.live, name="live"),
    path("attention", overview.attention, name="attention"),
    path("flow", overview.flow, name="flow"),
    path("group", groups.group, name="group"),
    path("group/facts", groups.facts, name="facts"),
    path("limits", group_limits.limits, name="group_limits"),
    path("limits/group", group_limits.limit, name="group_limit"),
    path("batches", batches.batches, name="batches"),
    path("batches/<int:batch_id>", batches.batch, name="batch"),
    path("failed", search.failed, name="failed"),
    path("jobs", jobs.jobs, name="jobs"),
    path("jobs/<int:job_id>", jobs.job, name="job"),
    path("commands", command_lists.commands, name="commands"),
    path("commands/project", command_lists.project, name="command_project"),
    path("commands/list/<int:list_id>", command_lists.command_list, name="command_list"),
    path("commands/command", command_lists.command, name="command"),
    path("commands/output", command_lists.output, name="command_output"),
    path("workers", groups.workers, name="workers"),
    path("schedules", schedules.schedules, name="schedules"),
    path("schedules/times", schedules.times, name="schedule_times"),
    path("operations", operations.operations, name="operations"),
    path("operations/mine", operations.mine, name="mine"),
    path("operations/<int:operation_id>", operations.operation, name="operation"),
    path("audit", operations.audit, name="audit"),
    path("audit/export", operations.export, name="audit_export"),
    path("audit/<int:entry_id>", operations.entry, name="audit_entry"),
    path("search", search.search, name="search"),
    path("search/suggestions", search.suggestions, name="suggestions"),
    path("search/save", search.save_search, name="save_search"),
    path("search/<int:search_id>/rename", search.rename_search, name="rename_search"),
    path("search/<int:search_id>/delete", search.delete_search, name="delete_search"),
    path("export", files.export, name="export"),
    path("rates", group_table.rates, name="rates"),
    path("task/<int:task_id>", tasks.task, name="task"),
    path("task/<int:task_id>/data", tasks.data, name="data"),
    # Changes
    path("add", tasks.add, name="add"),
    path("import", files.import_tasks, name="import"),
    path("pause", groups.pause, name="pause"),
    path("resume", groups.resume, name="resume"),
    path("limits/set", group_limits.set_limit, name="set_limit"),
    path("limits/remove", group_limits.remove_limit, name="remove_limit"),
    path("batches/<int:batch_id>/release", batches.release, name="release_batch"),
    path("batches/<int:batch_id>/delete", batches.delete, name="delete_batch"),
    path("task/<int:task_id>/give-back", tasks.give_back, name="give_back"),
    path("task/<int:task_id>/cancel", tasks.cancel, name="cancel_task"),
    path("task/<int:task_id>/edit", tasks.edit, name="edit"),
    path("jobs/<int:job_id>/requeue", jobs.requeue, name="requeue_job"),
    path("jobs/<int:job_id>/delete", jobs.delete, name="delete_job"),
    path("commands/submit", command_changes.submit, name="submit_commands"),
    path("commands/list/<int:list_id>/reopen", command_changes.reopen, name="reopen_list"),
    path("commands/cancel", command_changes.cancel, name="cancel_command"),
    path("commands/confirm", command_changes.confirm, name="confirm_commands"),
    *[
        path(f"commands/{verb}", command_changes.change, {"verb": verb}, name=f"{verb}_commands")
        for verb in command_changes.VERBS
    ],
    path("confirm", operations.confirm, name="confirm"),
    *[path(verb, operations.begin, {"verb": verb}, name=f"{verb}_many") for verb in ACTIONS],
    path("operations/<int:operation_id>/cancel", operations.cancel, name="cancel"),
    path("operations/<int:operation_id>/undo", operations.undo, name="undo"),
    path("schedules/add", schedules.add, name="add_schedule"),
    path("schedules/<str:name>/edit", schedules.edit, name="edit_schedule"),
    *[
        path(f"schedules/<str:name>/{verb}", schedules.change, {"verb": verb}, name=f"{verb}_schedule")
        for verb in schedules.ASKED
    ],
    path("schedules/<str:name>/resume", schedules.resume, name="resume_schedule"),
    # Tokens, people and settings
    path("settings", tokens.tokens, name="settings"),
    path("settings/tokens/add", tokens.add, name="add_token"),
    path("settings/tokens/<int:token_id>/revoke", tokens.revoke, name="revoke_token"),
    path("settings/people", accounts.people, name="people"),
    path("settings/people/add", accounts.add, name="add_person"),
    path("settings/people/<str:user_id>", accounts.person, name="person"),
    path("settings/people/<str:user_id>/close", accounts.change, {"verb": "close"}, name="close_account"),
    path("settings/people/<str:user_id>/open", accounts.change, {"verb": "open"}, name="open_account"),
    path("settings/people/<str:user_id>/sign-out", accounts.change, {"verb": "sign out"}, name="sign_out_person"),
    path("settings/people/<str:user_id>/password", accounts.change, {"verb": accounts.RESET}, name="reset_password"),
    path("settings/limits", server_settings.limits, name="limits"),
]
