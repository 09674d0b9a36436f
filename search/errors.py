"""Errors of the search room."""

from warpsmith import WarpsmithError


class SearchError(WarpsmithError):
    """An operator cannot build its prompt."""
