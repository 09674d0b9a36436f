"""Everything alive during a run: Ray, the pools, the learner. Started in order, closed whatever happens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from actors.types import JudgeJob, JudgeResult
from cluster.config import Config
from cluster.interrupts import sigterm_kept
from cluster.watchdog import children, watchdog
from learner.types import Sample, StepResult, WeightsVersion
from search.types import Completion, Prompt

if TYPE_CHECKING:
    from actors.placement import Bundles

Say = Callable[[str], None]


class Rollouts(Protocol):
    """What samples completions: actors.pools.RolloutPool, or a recording."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]: ...


class Evaluators(Protocol):
    """What judges: actors.pools.EvaluatorPool, or a recording."""

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]: ...


class Learner(Protocol):
    """What learns: actors.pools.LearnerClient, or the engine in this process."""

    @property
    def policy_version(self) -> int: ...
    def step(self, samples: Sequence[Sample]) -> StepResult: ...
    def sft_step(self, samples: Sequence[Sample], lr_scale: float = 1.0) -> StepResult: ...
    def probe(self, token_ids: Sequence[int]) -> tuple[float, ...]: ...
    def publish(self, folder: Path) -> WeightsVersion: ...
    def lend(self) -> WeightsVersion: ...
    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Session:
    """The three roles; one that a run does without is None, and asking for it then is a mistake of ours."""

    rollout: Rollouts | None
    evaluators: Evaluators | None
    learner: Learner | None
    tokenizer: Any
    """The policy's Hugging Face tokenizer, for prompts' lengths and supervised samples."""
    live: bool = True
    """Whether an engine samples, which new weights must reach."""

    @property
    def the_rollout(self) -> Any:
        assert self.rollout is not None, "this run samples nothing"
        return self.rollout

    @property
    def the_evaluators(self) -> Evaluators:
        assert self.evaluators is not None, "this run judges nothing"
        return self.evaluators

    @property
    def the_learner(self) -> Learner:
        assert self.learner is not None, "this run learns nothing"
        return self.learner

    def count_tokens(self, text: str) -> int:
        return len(self.chat_ids(({"role": "user", "content": text},)))

    def chat_ids(self, messages: tuple[dict[str, str], ...]) -> tuple[int, ...]:
        """Token ids of a chat up to where the answer starts, as the rollout engine sends them."""
        encoded = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=True)
        return tuple(encoded["input_ids"])

    def many_ids(
        self, chats: Sequence[tuple[dict[str, str], ...]], answers: Sequence[str]
    ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """``chat_ids`` and ``answer_ids`` of thousands of pairs, several times as fast."""
        texts = [
            self.tokenizer.apply_chat_template(list(chat), add_generation_prompt=True, tokenize=False) for chat in chats
        ]
        prompts, ends = (self.tokenizer(many, add_special_tokens=False)["input_ids"] for many in (texts, [*answers]))
        closing = self.tokenizer.eos_token_id
        return [(tuple(one), (*other, closing)) for one, other in zip(prompts, ends, strict=True)]

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer, closed by the token that ends a turn."""
        return (*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id)


@contextmanager
def ray_cluster(config: Config) -> Iterator[None]:
    """Join the cluster that this process was started on (`ray job submit`, RAY_ADDRESS), else start a local one.

    Where this process is connected already, as a trial of Ray Tune is, that connection is used and left as it is.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    joined = bool(os.environ.get("RAY_ADDRESS"))
    others = children()
    with sigterm_kept():
        if joined:
            ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        else:
            # Logical CPUs: one for each actor that may exist, since the roles take turns on a small machine.
            wanted = config.rollout.actors + config.evaluators.actors + 1
            ray.init(
                num_cpus=max(os.cpu_count() or 1, wanted),
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
    with ExitStack() as stack:
        if not joined:
            stack.enter_context(watchdog(others))
        stack.callback(ray.shutdown)
        yield


def bundles_of(config: Config, learns: bool) -> tuple[Bundles, ...]:
    """The places that a run needs before it can begin, by role."""
    from actors.learner_client import LEARNER, LEARNER_CPUS
    from actors.placement import Bundles
    from actors.seats import Role

    wanted, judge_gpus = config.placement, config.evaluators.gpus if config.judge.device == "cuda" else 0

    def places(cpus: float, gpus: float, others: dict[str, float]) -> dict[str, float]:
        return {"CPU": cpus} | ({"GPU": gpus} if gpus else {}) | others

    engine = places(Role.num_cpus, config.rollout.gpus, wanted.rollout_resources)
    judge = places(Role.num_cpus, judge_gpus, wanted.evaluator_resources)
    learner = places(LEARNER_CPUS, config.learner.gpus, wanted.learner_resources)
    return (
        Bundles(role="rollout engine", count=config.rollout.actors, resources=engine),
        Bundles(role="evaluator", count=config.evaluators.actors, resources=judge),
        Bundles(role=LEARNER, count=int(learns), resources=learner),
    )


@contextmanager
def open_session(
    config: Config, model_dir: Path, work_dir: Path, on_event: Say, *, learns: bool = True
) -> Iterator[Session]:
    """Start the three roles (two when it does not learn) and close them on the way out, the failed start included."""
    from transformers import AutoTokenizer

    from actors.placement import reserve
    from actors.pools import EvaluatorPool, LearnerClient, RolloutPool

    wanted = config.placement
    with ExitStack() as stack:
        stack.enter_context(ray_cluster(config))
        places = stack.enter_context(reserve(bundles_of(config, learns), wanted.mode, config.timeouts.placement))
        evaluators = EvaluatorPool(
            config.judge,
            config.evaluators,
            config.timeouts,
            role={"places": places, "resources": wanted.evaluator_resources},
            asks=wanted.autoscaler,
            on_event=on_event,
        )
        stack.callback(evaluators.close)
        rollout = RolloutPool(
            model_dir,
            config.rollout,
            config.timeouts,
            seed=config.run.seed,
            role={"places": places, "resources": wanted.rollout_resources},
            asks=wanted.autoscaler,
            on_event=on_event,
        )
        stack.callback(rollout.close)
        learner = None
        if learns:
            learner = LearnerClient(
                model_dir,
                config.learner,
                config.timeouts,
                temperature=config.rollout.temperature,
                work_dir=work_dir,
                seed=config.run.seed,
                places=places,
                resources=wanted.learner_resources,
            )
            stack.callback(learner.close)
        for part in (evaluators, rollout, learner):
            if part is not None:
                part.wait_ready()
        yield Session(
            rollout=rollout,
            evaluators=evaluators,
            learner=learner,
            tokenizer=AutoTokenizer.from_pretrained(model_dir),
        )
