"""Everything alive during a run: Ray, the pools, the learner. Started in order, closed whatever happens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.config import Config
from cluster.watchdog import children, watchdog

if TYPE_CHECKING:
    from actors.pools import EvaluatorPool, LearnerClient, RolloutPool

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Session:
    rollout: RolloutPool
    evaluators: EvaluatorPool
    learner: LearnerClient
    tokenizer: Any
    """The policy's Hugging Face tokenizer, for prompts' lengths and supervised samples."""

    def count_tokens(self, text: str) -> int:
        return len(self.chat_ids(({"role": "user", "content": text},)))

    def chat_ids(self, messages: tuple[dict[str, str], ...]) -> tuple[int, ...]:
        """Token ids of a chat up to where the answer starts, as the rollout engine sends them."""
        encoded = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=True)
        return tuple(encoded["input_ids"])

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer, closed by the token that ends a turn."""
        return (*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id)


@contextmanager
def ray_cluster(config: Config) -> Iterator[None]:
    """Join the cluster that this process was started on (`ray job submit`, RAY_ADDRESS), else start a local one."""
    import ray

    joined = bool(os.environ.get("RAY_ADDRESS"))
    others = children()
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


@contextmanager
def open_session(config: Config, model_dir: Path, work_dir: Path, on_event: Say) -> Iterator[Session]:
    """Start the three roles and close them on the way out, the failed start included."""
    from transformers import AutoTokenizer

    from actors.pools import EvaluatorPool, LearnerClient, RolloutPool

    with ExitStack() as stack:
        stack.enter_context(ray_cluster(config))
        evaluators = EvaluatorPool(config.judge, config.evaluators, config.timeouts, on_event=on_event)
        stack.callback(evaluators.close)
        rollout = RolloutPool(model_dir, config.rollout, config.timeouts, seed=config.run.seed, on_event=on_event)
        stack.callback(rollout.close)
        learner = LearnerClient(
            model_dir,
            config.learner,
            config.timeouts,
            temperature=config.rollout.temperature,
            work_dir=work_dir,
            seed=config.run.seed,
        )
        stack.callback(learner.close)
        for part in (evaluators, rollout, learner):
            part.wait_ready()
        yield Session(
            rollout=rollout,
            evaluators=evaluators,
            learner=learner,
            tokenizer=AutoTokenizer.from_pretrained(model_dir),
        )
