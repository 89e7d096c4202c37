"""Cron-like schedules: tasks and jobs that are added when they are due."""

from taskstore.types.schedules import PlannedJob, PlannedTask, SchedulePlan

from .past import Past, last_of
from .record import NAME_LABEL, ScheduleRecord, problems_of_plan
from .running import RightsKeeper, Scheduler, keep_rights, work
from .timetable import Timetable, problems_of
from .verbs import delete, pause, plan_of, put, resume, run_now, schedule, schedules

__all__ = [
    "NAME_LABEL",
    "Past",
    "PlannedJob",
    "PlannedTask",
    "RightsKeeper",
    "SchedulePlan",
    "ScheduleRecord",
    "Scheduler",
    "Timetable",
    "delete",
    "keep_rights",
    "last_of",
    "pause",
    "plan_of",
    "problems_of",
    "problems_of_plan",
    "put",
    "resume",
    "run_now",
    "schedule",
    "schedules",
    "work",
]
