"""Errors of the learner room."""

from warpsmith import WarpsmithError


class LearnerError(WarpsmithError):
    """Weights, checkpoints or batches are unusable; the text says which and what to do."""


class DamagedCheckpointError(LearnerError):
    """A checkpoint's files are not what was written; the text names which. An older one may be whole."""
