"""The HTTP service: the serving section of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ServingSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)
    archive: str = ""
    """Database of records, jobs and keys; empty: optimize/archive.db under run.folder. With several nodes give a
    PostgreSQL URL (its password belongs into PGPASSWORD or a .pgpass file, not here)."""
    model_name: str = ""
    """What clients call the policy; empty: the last part of model.path."""
    max_candidates: int = Field(16, ge=1)
    """Most candidates that one job may ask for."""
    budget_seconds: float = Field(600, gt=0)
    """Longest that one job may work."""
    max_body_bytes: int = Field(262144, ge=1024)
    max_queued: int = Field(8, ge=1)
    """Jobs that wait beyond the one being worked on; more are answered with 503."""
    max_judging: int = Field(8, ge=1)
    """Calls of /v1/judge in hand at a time; more are answered with 503."""
    max_completing: int = Field(256, ge=1)
    """Completions in hand at a time, on all replicas; more are answered with 503."""
    keep_jobs: int = Field(1000, ge=1)
    """Finished jobs that are kept; older ones are forgotten, their records stay in the archive."""
    job_lease_seconds: float = Field(15, gt=0)
    """A worker that has not been heard of for so long is taken for dead, and its job is begun again."""
    job_attempts: int = Field(3, ge=1)
    """A job whose worker died so often has failed."""
    policy_replicas_min: int = Field(1, ge=1)
    policy_replicas_max: int = Field(1, ge=1)
    """Above the minimum, Ray Serve adds and removes engines with the load."""
    policy_target_ongoing: int = Field(32, ge=1)
    """Requests in hand for each engine that autoscaling aims at."""
    require_key: Literal["auto", "always", "never"] = "auto"
    """auto: keys are asked for as soon as one was made, and always where `host` or the caller is another machine."""
    cors_origins: tuple[str, ...] = ()
    """Web origins whose pages may call the service; none unless named."""
    access_log: str = ""
    """File for one JSON line a request; empty: the log of the front's process."""
