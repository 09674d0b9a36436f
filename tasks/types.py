"""What a task is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

DISTRIBUTIONS = ("given", "shifted", "large", "ties")
"""How the judge redraws floating inputs: as the task gives them, moved off zero mean, times 50, rounded with zeros."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A named set of module constants that replaces those of the task file (shapes, mostly).

    Example: ``Variant(name="odd", constants={"ROWS": 61, "COLS": 1031}, held_out=True)``
    """

    name: str
    """"default" is the task file as it stands."""
    constants: dict[str, Any]
    """Top-level constants to replace before the file runs, so that values derived from them follow."""
    held_out: bool = False
    """Never shown in a prompt; always verified."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A PyTorch reference to speed up, in KernelBench's form: ``Model``, ``get_inputs()``, ``get_init_inputs()``.

    It is source text and literal constants only: nothing of the file has been run. Running it is the reference
    jail's business.
    """

    name: str
    source: str
    """The Python file."""
    path: str | None = None
    """Where it came from, for messages."""
    level: int = 1
    """1 single operator, 2 fusion, 3 block."""
    variants: tuple[Variant, ...] = (Variant(name="default", constants={}),)
    """The first is "default", the one that is timed."""
    gpu_variants: tuple[Variant, ...] = ()
    """In place of ``variants`` on a GPU, whose shapes are larger; empty: the same."""
    tolerance: float | None = None
    """Relative error allowed in place of the judge's own floor, where the task states one."""
    distributions: tuple[str, ...] = DISTRIBUTIONS
    """Which of DISTRIBUTIONS make sense for this task's inputs."""
    backward: bool = False
    """True when the gradient with respect to the inputs is judged too."""
    strided: bool = False
    """True when candidates are given inputs that are not contiguous, too."""
    backends: tuple[str, ...] = ("cpp",)
    """Languages that candidates may use: "cpp", "cuda", "triton"."""

    @cached_property
    def task_id(self) -> str:
        """First 16 hex digits of the SHA-256 of the source: two tasks are the same when their text is."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    def variants_on(self, device: str) -> tuple[Variant, ...]:
        """The variants for "cpu" or "cuda"."""
        return self.gpu_variants if device == "cuda" and self.gpu_variants else self.variants

    @property
    def where(self) -> str:
        """The task for a message: its path, else its name."""
        return self.path or self.name


@dataclass(frozen=True, kw_only=True)
class ExpertKernel:
    """A hand-written candidate of the suite, with the performance analysis that the protocol asks for."""

    task_name: str
    quality: str
    """"good", "plain", or "excellent"."""
    backend: str = "cpp"
    """"cpp", "cuda" or "triton"."""
    code: str
    """A candidate file."""
    analysis: str
    """Its module docstring."""
