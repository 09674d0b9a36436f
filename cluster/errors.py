"""Errors of the cluster room."""

from warpsmith import WarpsmithError


class ConfigError(WarpsmithError):
    """The configuration, a run folder or a command's argument is wrong; the text says which and what to do."""
