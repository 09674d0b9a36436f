"""Errors of the archive room."""

from warpsmith import WarpsmithError


class ArchiveError(WarpsmithError):
    """The archive cannot be read or written; the text names the URL and the remedy."""
