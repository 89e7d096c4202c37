"""What the project's tests use of the framework, from where this Django has it."""

from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task as decorator
    from django.tasks.exceptions import TaskResultMismatch
else:
    from django_tasks import task as decorator
    from django_tasks.exceptions import TaskResultMismatch

task: Any = decorator  # It takes options that only the backend knows.

__all__ = ["TaskResultMismatch", "task"]
