"""The app, as Django finds it."""

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate, post_save


class TasksAppConfig(AppConfig):
    name = "tasks_app"
    verbose_name = "Task Store"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models can be imported only now.
        from . import checks  # noqa: F401 - It registers itself.
        from .access import policy
        from .database import triggers

        post_migrate.connect(triggers.put_right, sender=self)
        for counted in ("tasks_app.Task", "tasks_app.EndedTask"):
            post_save.connect(triggers.count_on, sender=counted)
        post_migrate.connect(policy.make_roles, sender=self)
        if hasattr(settings, "TASKS"):  # Otherwise the framework may not be installed.
            from .managers import tasks_cancelled
            from .tasks_backend.signals import tell_cancelled

            tasks_cancelled.connect(tell_cancelled)
