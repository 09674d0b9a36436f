"""At most so many inside; who comes then is told to come back."""

from __future__ import annotations

from serving.messages import RequestError
from serving.metrics import Metrics


class Turnstile:
    """with turnstile: ... raises RequestError 503 when it is full. For one event loop."""

    def __init__(self, name: str, most: int, metrics: Metrics) -> None:
        self._name, self._most, self._refused = name, most, metrics.refused.labels(name)
        self.inside = 0

    def __enter__(self) -> None:
        if self.inside >= self._most:
            self._refused.inc()
            raise RequestError(503, f"{self.inside} {self._name} requests are in hand, as many as may: try again later")
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1
