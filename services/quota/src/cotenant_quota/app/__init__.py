"""The quota service at work."""

from cotenant_quota.app.service import QuotaService

__all__ = ["QuotaService"]
