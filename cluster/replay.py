"""A run without engines: answers and verdicts out of a recording, the learner in this process, no Ray.

In one process a breakpoint works, and the same answers give the same batches and, on a CPU, the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from actors.types import JudgeJob, JudgeResult
from cluster.config import Config
from cluster.errors import ConfigError
from cluster.recording import Recording
from cluster.session import Session
from learner.types import Sample, StepResult, WeightsVersion
from search.types import Completion, Prompt

if TYPE_CHECKING:
    from learner.engine import Engine


class LocalLearner:
    """The learner's engine in this process, with the client's methods. All raise LearnerError as the engine does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def policy_version(self) -> int:
        return self._engine.policy_version

    def step(self, samples: Sequence[Sample]) -> StepResult:
        return self._engine.step(samples)

    def sft_step(self, samples: Sequence[Sample], lr_scale: float = 1.0) -> StepResult:
        return self._engine.sft_step(samples, lr_scale)

    def probe(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        return tuple(self._engine.logprobs(list(token_ids)))

    def publish(self, folder: Path) -> WeightsVersion:
        return self._engine.publish(folder)

    def lend(self) -> WeightsVersion:
        return self._engine.lend()

    def save(self, folder: Path) -> None:
        self._engine.save(folder)

    def load(self, folder: Path) -> None:
        self._engine.load(folder)

    def close(self) -> None:
        self._engine.close()


class RecordedRollouts:
    """Answers prompts from a recording; a prompt that is not the recorded one is an error, not another answer."""

    def __init__(self, recording: Recording) -> None:
        self._groups = {group.prompt.prompt_id: group for group in recording.groups.values()}
        self._where = recording.where

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """The recorded completions, in the prompts' order.

        Raises ConfigError: a prompt is not in the recording, or has another text there.
        """
        return [completion for prompt in prompts for completion in self._answers(prompt)]

    def _answers(self, prompt: Prompt) -> list[Completion]:
        group = self._groups.get(prompt.prompt_id)
        if group is None:
            raise ConfigError(
                f"{self._where}: holds no answers to {prompt.prompt_id}: replay with the configuration of the recorded "
                "run, and no more steps than it did"
            )
        if group.prompt.messages != prompt.messages:
            raise ConfigError(
                f"{self._where}: {prompt.prompt_id} was another prompt there{_difference(group.prompt, prompt)}: "
                "replay with the configuration and the tasks of the recorded run, or use --learn-only"
            )
        return [answer.completion for answer in group.answers]


class RecordedVerdicts:
    """Answers judge jobs from a recording."""

    def __init__(self, recording: Recording) -> None:
        self._verdicts = recording.verdicts()
        self._where = recording.where

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]:
        """A result for each job, in order. Raises ConfigError when a job's verdict is not in the recording."""
        for job in jobs:
            verdict = self._verdicts.get(str(job.job_id))
            if verdict is None:
                raise ConfigError(
                    f"{self._where}: holds no verdict on {job.task.name} {job.job_id[:8]}: the recorded run stopped "
                    "while it judged; replay fewer steps, or finish that run first"
                )
            yield JudgeResult(job=job, verdict=verdict)


@contextmanager
def open_local_session(
    config: Config, model_dir: Path, work_dir: Path, recording: Recording | None
) -> Iterator[Session]:
    """A session of the learner alone, and of the recording's answers and verdicts."""
    from transformers import AutoTokenizer

    from learner.engine import Engine

    with ExitStack() as stack:
        engine = Engine(
            model_dir,
            config.learner,
            temperature=config.rollout.temperature,
            work_dir=work_dir,
            seed=config.run.seed,
        )
        stack.callback(engine.close)
        yield Session(
            rollout=RecordedRollouts(recording) if recording else None,
            evaluators=RecordedVerdicts(recording) if recording else None,
            learner=LocalLearner(engine),
            tokenizer=AutoTokenizer.from_pretrained(model_dir),
            live=False,
        )


def _difference(recorded: Prompt, asked: Prompt) -> str:
    """Where two prompts part, for a message."""
    one, other = (prompt.messages[-1].get("content", "") if prompt.messages else "" for prompt in (recorded, asked))
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f" (character {place}: {one[place : place + 20]!r}, now {other[place : place + 20]!r})"
