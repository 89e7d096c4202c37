"""Where everything is. The REST API sits at the root, as the Task Store documents it."""

from django.contrib import admin
from django.urls import path

urlpatterns = [
    # Django's admin: ad hoc edits, through the store.
    path("admin/", admin.site.urls),
]
