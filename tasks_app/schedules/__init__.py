"""Cron-like schedules: tasks and jobs that are added when they are due."""

from .record import (
    GROUP,
    NAME_LABEL,
    CatchUp,
    DueJob,
    DueTask,
    LastRun,
    ScheduledJobOptions,
    SchedulePause,
    SchedulePlan,
    ScheduleRecord,
)
from .running import Scheduler, work
from .timetable import Timetable, problems_of
from .verbs import Schedule, ScheduleState, delete, pause, put, resume, run_now, schedule, schedules

__all__ = [
    "GROUP",
    "NAME_LABEL",
    "CatchUp",
    "DueJob",
    "DueTask",
    "LastRun",
    "Schedule",
    "SchedulePause",
    "SchedulePlan",
    "ScheduleRecord",
    "ScheduleState",
    "ScheduledJobOptions",
    "Scheduler",
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
