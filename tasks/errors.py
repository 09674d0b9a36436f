"""Errors of the tasks room."""

from warpsmith import WarpsmithError


class TaskError(WarpsmithError):
    """A task file cannot be used; the text names the file, the line where known, and the remedy."""
