"""The app, as Django finds it."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class TasksAppConfig(AppConfig):
    name = "tasks_app"
    verbose_name = "Task Store"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, guards, policy  # noqa: F401 - Models can be imported only now; checks registers itself.

        post_migrate.connect(guards.put_right, sender=self)
        post_migrate.connect(policy.make_roles, sender=self)
