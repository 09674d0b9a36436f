"""Errors of the learner room."""

from warpsmith import WarpsmithError


class LearnerError(WarpsmithError):
    """Weights, checkpoints or batches are unusable; the text says which and what to do."""
