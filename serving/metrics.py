"""The service's own numbers, in Prometheus's text form at /metrics. No label has a value that a client chooses."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1200)


class Metrics:
    """One front's numbers. A registry of its own: two fronts in one process (tests) do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "warpsmith_requests", "Requests by outcome.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "warpsmith_request_seconds",
            "Time to the end of the answer.",
            ["method", "route"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.inside = Gauge("warpsmith_requests_inside", "Requests in hand.", registry=self.registry)
        self.jobs = Gauge("warpsmith_jobs", "Jobs in the database by state.", ["state"], registry=self.registry)
        self.refused = Counter(
            "warpsmith_refused", "Requests that found their queue full.", ["queue"], registry=self.registry
        )
        self.tokens = Counter("warpsmith_tokens", "Tokens of answered completions.", ["kind"], registry=self.registry)
        self.first_token = Histogram(
            "warpsmith_first_token_seconds",
            "Time to the first piece of a streamed completion.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.verdicts = Counter(
            "warpsmith_judge_verdicts", "Verdicts of /v1/judge by status.", ["status"], registry=self.registry
        )
        self.policy_version = Gauge("warpsmith_policy_version", "Version of the weights.", registry=self.registry)

    def text(self) -> bytes:
        """What /metrics answers."""
        return generate_latest(self.registry)
