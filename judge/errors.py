"""Errors of the judge room. A candidate's failure is a Verdict, never one of these."""

from warpsmith import WarpsmithError


class JudgeError(WarpsmithError):
    """The judge itself could not do its work."""


class SandboxError(JudgeError):
    """``require_sandbox`` is set and this machine lacks an isolation layer; the text names it."""


class SignatureError(WarpsmithError):
    """A kernel's declared parameters and the call's arguments disagree (load_cpp)."""


class CollectionError(WarpsmithError):
    """A collection of candidates cannot be read; the text says where and what is wrong."""
