"""Ways to ask for a candidate, and what an answer in the protocol looks like.

``contrast`` shows exemplars of different speed (CUDA-L1); ``vanilla`` shows none.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from archive.types import Record
from search.backends import backend_of, gpu_name, of_backend
from search.errors import SearchError
from search.prompts import fenced, render
from search.samplers import sample_exemplars
from search.settings import SearchSettings
from search.types import Prompt
from tasks.types import Task

CHARACTERS_PER_TOKEN = 2.5
"""For callers without a tokenizer: what SmolLM2's makes of prompts full of code, rounded down to be safe."""

_CPP_MEANS = (
    ("OpenMP threads", r"#pragma omp[^\n]*\bparallel\b"),
    ("SIMD loops", r"#pragma omp[^\n]*\bsimd\b|_mm\d*_"),
)
_CUDA_MEANS = (
    ("shared memory", r"\b__shared__\b"),
    ("warp shuffles", r"\b__(?:shfl|reduce)\w*_sync\b"),
    ("16-byte loads", r"\bfloat4\b"),
    ("atomics", r"\batomic[A-Z]\w*"),
)

_ANSWER = """\
## Performance analysis
{analysis}

## Algorithm design
{design}

## Code
{code}
"""


def build_prompt(
    task: Task,
    records: Sequence[Record],
    settings: SearchSettings,
    rng: np.random.Generator,
    *,
    prompt_id: str,
    count_tokens: Callable[[str], int] | None = None,
) -> Prompt:
    """The prompt for a task, at most ``settings.max_prompt_tokens`` long.

    A contrast prompt that finds or fits no exemplar is a vanilla prompt, and says so in its ``operator``.

    Args:
        records: of this task, in any order; exemplars are drawn from them.
        count_tokens: length of a prompt's text as the policy will read it; an estimate when left out.

    Raises:
        SearchError: even the prompt without exemplars is too long, or the task does not admit settings.backend.
    """
    if settings.operator == "evolve":
        from search.proposals import evolve_prompt  # it builds on this module

        prompt = evolve_prompt(task, records, settings, rng, prompt_id=prompt_id, count_tokens=count_tokens)
        if prompt is not None:
            return prompt
    count = count_tokens or estimate_tokens
    records = of_backend(records, settings.backend)
    exemplars = sample_exemplars(records, settings, rng) if settings.operator == "contrast" else []
    hardware = hardware_of(exemplars or records, settings)
    length = 0
    for shown in _fewer_and_fewer(exemplars):
        text = render(task, shown, hardware, backend=settings.backend, short=settings.short_prompts)
        length = count(text)
        if length <= settings.max_prompt_tokens:
            return Prompt(
                prompt_id=prompt_id,
                task_name=task.name,
                operator="contrast" if shown else "vanilla",
                messages=({"role": "user", "content": text},),
                exemplar_ids=tuple(record.record_id for record in shown),
            )
    raise SearchError(
        f"{task.where}: its prompt has {length} tokens without any exemplar, search.max_prompt_tokens is "
        f"{settings.max_prompt_tokens}; raise it to at least {length}, or shorten the task file"
    )


def expert_completion(code: str, analysis: str, design: str = "") -> str:
    """An answer in the three-section protocol, for supervised samples.

    ``parse`` gives back exactly this analysis (one that is stripped and holds no heading of the protocol) and exactly
    this code (one that ends with a single newline). The design section is read off the code where none is given.
    """
    return _ANSWER.format(
        analysis=analysis.strip(), design=design or _design(code), code=fenced(code.removesuffix("\n"))
    )


def _fewer_and_fewer(exemplars: list[Record]) -> Iterator[list[Record]]:
    """All exemplars, then without the slowest, ...; then each of the others alone; then none."""
    for number in range(len(exemplars), 0, -1):
        yield exemplars[-number:]
    for record in reversed(exemplars[:-1]):
        yield [record]
    yield []


def estimate_tokens(text: str) -> int:
    """How long a text is for a model whose tokenizer is not at hand."""
    return int(len(text) / CHARACTERS_PER_TOKEN) + 1


def hardware_of(records: Sequence[Record], settings: SearchSettings) -> str:
    """The machine as settings name it, else the one whose speedups are shown; without any, this one."""
    if settings.hardware:
        return settings.hardware
    key = "gpu" if settings.backend == "cuda" else "cpu"
    known = next((record.verdict.hardware for record in records if record.verdict.hardware.get(key)), {})
    if settings.backend == "cuda":
        return known.get("gpu") or gpu_name() or "an NVIDIA GPU"
    cpu = known.get("cpu") or platform.processor() or platform.machine()
    threads = known.get("threads") or str(os.cpu_count() or 1)
    return f"{cpu} ({threads} thread{'s' * (threads != '1')})"


def _design(code: str) -> str:
    """What can be read off a candidate: its kernels, threads, vector loops, shared memory."""
    cuda = backend_of(code) == "cuda"
    kernels = re.findall(r'extern\s*"C"\s*(?:\{\s*)?[\w\s*]*?(\w+\s*\([^()]*\))\s*\{', code)
    signatures = " and ".join(" ".join(kernel.split()) for kernel in kernels) or "no extern C function"
    means = [name for name, pattern in (_CUDA_MEANS if cuda else _CPP_MEANS) if re.search(pattern, code)]
    plain = "with plain loads and stores" if cuda else "with plain loops in one thread"
    return f"A {'CUDA' if cuda else 'C++'} kernel {signatures}, {' and '.join(means) if means else plain}."
