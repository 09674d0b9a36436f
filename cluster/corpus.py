"""Supervised samples from a file: one JSON object a line with a prompt, an answer and its score.

    {"prompt": "Write a faster ...", "answer": "## Performance analysis ...", "score": 1.8, "task": "softmax"}

The prompt is a text or a chat in OpenAI's form. ``score`` is 1 and ``task`` the prompt itself where they are missing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import ConfigError
from cluster.run import Run
from learner.types import Sample


@dataclass(frozen=True, kw_only=True)
class Example:
    """One line of a corpus."""

    messages: tuple[dict[str, str], ...]
    answer: str
    score: float
    task: str


def read_corpus(path: Path) -> list[Example]:
    """The examples of a JSONL file, in order. Raises ConfigError, naming the line, for what is no example."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"sft.corpus: {path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    examples = [_example(text, f"{path}: line {number}") for number, text in enumerate(lines, 1) if text.strip()]
    if not examples:
        raise ConfigError(f"sft.corpus: {path}: holds no example")
    return examples


def select(examples: Sequence[Example], min_score: float, max_per_task: int) -> list[Example]:
    """Those that score enough; of each task the best ``max_per_task`` (0: all), an equal score by order in the file."""
    ranks: dict[str, int] = {}
    chosen = []
    good = [(i, e) for i, e in enumerate(examples) if e.score >= min_score]
    for i, example in sorted(good, key=lambda pair: (-pair[1].score, pair[0])):
        ranks[example.task] = ranks.get(example.task, 0) + 1
        if not max_per_task or ranks[example.task] <= max_per_task:
            chosen.append((i, example))
    return [example for _, example in sorted(chosen, key=lambda pair: pair[0])]


def corpus_samples(run: Run) -> list[list[Sample]]:
    """The batches of all epochs, each epoch in an order of its own; empty without a corpus.

    An example longer than learner.micro_batch_tokens is left out, and how many are is said once.

    Raises ConfigError: the file is unusable, or nothing in it scores or fits.
    """
    settings = run.config.sft
    if settings.corpus is None:
        return []
    chosen = select(read_corpus(Path(settings.corpus)), settings.min_score, settings.max_per_task)
    tokens = run.session.many_ids([e.messages for e in chosen], [e.answer for e in chosen])
    samples = [
        Sample(
            prompt_ids=prompt,
            completion_ids=answer,
            group_id=f"corpus-{hashlib.sha256(example.task.encode()).hexdigest()[:12]}",
        )
        for example, (prompt, answer) in zip(chosen, tokens, strict=True)
    ]
    room = run.config.learner.micro_batch_tokens
    fitting = [s for s in samples if len(s.prompt_ids) + len(s.completion_ids) <= room]
    if len(fitting) < len(samples):
        run.say(
            f"warning: {len(samples) - len(fitting)} of {len(samples)} examples of {settings.corpus} are longer "
            f"than learner.micro_batch_tokens ({room}) and are left out"
        )
    if not fitting:
        raise ConfigError(f"sft.corpus: {settings.corpus}: no example scores sft.min_score or fits")
    return epoch_batches(run, fitting, 4)


def epoch_batches(run: Run, samples: Sequence[Sample], stream: int) -> list[list[Sample]]:
    """Batches of sft.batch, for sft.epochs epochs, each in an order of its own.

    Args:
        stream: tells these random numbers from others of the run's seed.
    """
    settings, batches = run.config.sft, []
    for epoch in range(settings.epochs):
        order = np.random.default_rng([run.config.run.seed, stream, epoch]).permutation(len(samples))
        shuffled = [samples[i] for i in order]
        batches += [shuffled[i : i + settings.batch] for i in range(0, len(shuffled), settings.batch)]
    return batches


def _example(text: str, where: str) -> Example:
    try:
        line = json.loads(text)
    except ValueError:
        raise ConfigError(f"sft.corpus: {where}: not JSON") from None
    prompt, answer = (line.get(key) for key in ("prompt", "answer")) if isinstance(line, dict) else (None, None)
    messages: Any = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not (isinstance(answer, str) and answer and _is_chat(messages)):
        raise ConfigError(f'sft.corpus: {where}: wants "prompt" (a text or a chat) and "answer" (a text)')
    score = line.get("score", 1.0)
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ConfigError(f"sft.corpus: {where}: score is {score!r}, no number")
    task = line.get("task") or json.dumps(messages, sort_keys=True)
    return Example(messages=tuple(messages), answer=answer, score=float(score), task=str(task))


def _is_chat(messages: Any) -> bool:
    turns = messages if isinstance(messages, list) else []
    return bool(turns) and all(
        isinstance(turn, dict) and all(isinstance(turn.get(key), str) for key in ("role", "content")) for turn in turns
    )
