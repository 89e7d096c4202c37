"""All URLs. The REST API is at the root, as the Task Store documents it."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    # The console, for people.
    path("", RedirectView.as_view(pattern_name="tasks_app:overview")),
    path("console", RedirectView.as_view(pattern_name="tasks_app:overview")),
    path("console/", include("tasks_app.console.urls")),
    # Django's admin: ad hoc edits, through the store.
    path("admin/", admin.site.urls),
    # The documentation, for everybody.
    path("docs", RedirectView.as_view(pattern_name="documentation:index")),
    path("docs/", include("taskstore_project.documentation.views")),
    # The REST API.
    path("", include("tasks_app.rest_api.urls")),
]

handler400 = "taskstore_project.error_pages.bad_request"
handler403 = "taskstore_project.error_pages.permission_denied"
handler404 = "taskstore_project.error_pages.not_found"
handler500 = "taskstore_project.error_pages.server_error"
