"""The service itself: subscribes, keeps what it knows, and carries decisions out."""

from cotenant_agent.app.service import AgentService

__all__ = ["AgentService"]
