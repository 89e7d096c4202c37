"""Takes people and roles out of this project's admin, as the console manages them."""

from django.contrib import admin
from django.contrib.auth import admin as _  # noqa: F401 - It registers what is taken out here.
from django.contrib.auth.models import Group

from tasks_app.access.people import Person

admin.site.unregister([model for model in (Person, Group) if admin.site.is_registered(model)])
