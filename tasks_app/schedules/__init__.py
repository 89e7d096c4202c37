"""Cron-like schedules: tasks and jobs that are added when they are due."""

from .record import GROUP, NAME_LABEL, PlannedJob, PlannedTask, ScheduledJobOptions, SchedulePlan, ScheduleRecord
from .running import Scheduler, work
from .timetable import Timetable, problems_of
from .verbs import StoredSchedule, delete, pause, put, resume, run_now, schedule, schedules

__all__ = [
    "GROUP",
    "NAME_LABEL",
    "PlannedJob",
    "PlannedTask",
    "SchedulePlan",
    "ScheduleRecord",
    "ScheduledJobOptions",
    "Scheduler",
    "StoredSchedule",
    "Timetable",
    "delete",
    "pause",
    "problems_of",
    "put",
    "resume",
    "run_now",
    "schedule",
    "schedules",
    "work",
]
