"""Django's admin with our site instead of its own."""

from django.contrib.admin import apps


class AdminConfig(apps.AdminConfig):
    default_site = "taskstore_project.admin_site.AdminSite"
