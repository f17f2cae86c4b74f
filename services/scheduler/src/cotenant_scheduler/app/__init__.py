"""The scheduler service at work."""

from cotenant_scheduler.app.service import SchedulerService

__all__ = ["SchedulerService"]
