"""Errors of the actors room."""

from warpsmith import WarpsmithError


class ActorError(WarpsmithError):
    """A pool has no member left, a deadline passed, weights do not agree; the text names what was waited for."""


class LearnerLostError(ActorError):
    """The learner died or passed a deadline. It can be started again, and goes on from the last checkpoint."""
