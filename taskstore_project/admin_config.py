"""The configuration of Django's admin with this project's site."""

from django.contrib.admin import apps


class AdminConfig(apps.AdminConfig):
    default_site = "taskstore_project.admin_site.AdminSite"
