"""The fixture that the package brings, which a project finds by its entry point."""

from tasks_app.pytest_plugin import task_queue

__all__ = ["task_queue"]
