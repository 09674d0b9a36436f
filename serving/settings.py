"""The HTTP service: the serving section of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ServingSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)
    max_candidates: int = Field(16, ge=1)
    """Most candidates that one request may ask for."""
    budget_seconds: float = Field(600, gt=0)
    """Longest that one request may take."""
    max_body_bytes: int = Field(262144, ge=1024)
    max_queued: int = Field(8, ge=1)
    """Requests waiting beyond the one being worked on; more are answered with 503."""
