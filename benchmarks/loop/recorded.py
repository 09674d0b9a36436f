"""Members for benchmarks of the loop itself: a judge, an engine and a learner that answer from recordings.

They are the product's pools, driver, archive and manifest that are measured, so what a GPU would do takes the time that
it is given and its answers follow from hashes: of a prompt and the weights that answer it, of a candidate's code, of
the batches that a learner was given. One verdict lost, one counted twice, or one answer by other weights than the
faultless run's gives another chain of hashes from there to the end of the run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.evaluator_pool import EvaluatorPool
from actors.learner_client import LearnerClient
from actors.member import Birth, Member
from actors.rollout_pool import RolloutPool
from actors.settings import RolloutSettings
from cluster.batches import batch_hash
from judge.settings import JudgeSettings
from judge.types import Candidate, Status, Verdict
from learner.settings import LearnerSettings
from learner.types import Sample, StepResult, WeightsVersion
from search.operators import expert_completion
from search.types import Completion, Prompt
from tasks.experts import expert_kernels
from tasks.types import Task

JUDGE_SECONDS = 0.2
ROLLOUT_SECONDS = 0.3
LEARN_SECONDS = 0.2


def numbers(text: str, count: int) -> tuple[float, ...]:
    """So many log-probabilities that follow from a text."""
    seed = hashlib.sha256(text.encode()).digest()
    return tuple(-1.0 - seed[i % 32] / 256 for i in range(count))


class RecordedJudge(Member):
    """A verdict by a hash of the code, after as long as a judge takes."""

    def start(self, settings: JudgeSettings, seconds: float = JUDGE_SECONDS) -> Birth:
        self._seconds = seconds
        return self.birth()

    def judge(self, task: Task, candidate: Candidate) -> Verdict:
        time.sleep(self._seconds)
        seed = hashlib.sha256(candidate.code.encode()).digest()
        speedup = 0.5 + seed[0] / 100
        status = Status.WIN if speedup > 1.1 else Status.CORRECT
        return Verdict(status=status, speedup=speedup, speedup_low=speedup - 0.05, speedup_high=speedup + 0.05)


class RecordedEngine(Member):
    """Expert kernels, chosen and marked by a hash of the prompt and of the weights that the engine holds."""

    def start(self, model_dir: str, settings: RolloutSettings, seed: int) -> Birth:
        self._settings, self._seed = settings, seed
        self._version = WeightsVersion(policy_version=0, path="", sha256="none")
        return self.birth()

    def load_weights(self, version: WeightsVersion) -> None:
        if not Path(version.path, "chain.json").exists():
            raise RuntimeError(f"{version.path} is gone")
        self._version = version

    def probe(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        chain = json.loads(Path(self._version.path, "chain.json").read_text())["chain"]
        return numbers(chain, len(token_ids) - 1)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        time.sleep(ROLLOUT_SECONDS)
        return [self._answer(prompt, index) for prompt in prompts for index in range(self._settings.group_size)]

    def _answer(self, prompt: Prompt, index: int) -> Completion:
        seed = hashlib.sha256(f"{self._seed}{prompt.messages}{index}{self._version.sha256}".encode()).digest()
        kernels = expert_kernels(prompt.task_name)
        kernel = kernels[seed[0] % len(kernels)]
        text = expert_completion(f"{kernel.code}MARK = {seed[1] * 256 + seed[2]}\n", "By memory.")
        text = text if seed[3] % 8 else "I cannot."
        ids = tuple(hashlib.sha256(text.encode()).digest())
        return Completion(
            prompt_id=prompt.prompt_id,
            index=index,
            text=text,
            prompt_token_ids=tuple(hashlib.sha256(str(prompt.messages).encode()).digest()),
            token_ids=ids,
            logprobs=numbers(text, len(ids)),
            finish_reason="stop",
            policy_version=self._version.policy_version,
        )


class ChainLearner(Member):
    """Its weights are the hash of all batches that it has learned from, in their order."""

    def start(self, model_dir: str, settings: LearnerSettings, **_: Any) -> Birth:
        self._keep, self._chain, self._version = settings.keep_versions, "begin", 0
        return self.birth()

    def step(self, samples: Sequence[Sample]) -> StepResult:
        time.sleep(LEARN_SECONDS)
        self._chain = hashlib.sha256(f"{self._chain} {batch_hash(samples)}".encode()).hexdigest()
        self._version += 1
        return StepResult(policy_version=self._version, metrics={"loss": numbers(self._chain, 1)[0]})

    def sft_step(self, samples: Sequence[Sample], lr_scale: float = 1.0) -> StepResult:
        return self.step(samples)

    def probe(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        return numbers(self._chain, len(token_ids) - 1)

    def publish(self, folder: str) -> WeightsVersion:
        target = Path(folder) / f"v{self._version:06d}"
        self._write(target)
        for old in sorted(Path(folder).glob("v??????"))[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)
        return WeightsVersion(policy_version=self._version, path=str(target), sha256=self._chain)

    def save(self, folder: str) -> None:
        self._write(Path(folder))

    def load(self, folder: str) -> int:
        state = json.loads((Path(folder) / "chain.json").read_text())
        self._chain, self._version = state["chain"], state["version"]
        return self._version

    def _write(self, target: Path) -> None:
        state = json.dumps({"chain": self._chain, "version": self._version})
        if (target / "chain.json").exists() and (target / "chain.json").read_text() == state:
            return  # an engine may be reading it
        temporary = target.with_suffix(".tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        (temporary / "chain.json").write_text(state)
        shutil.rmtree(target, ignore_errors=True)
        temporary.replace(target)


class JudgePool(EvaluatorPool):
    actor_class = RecordedJudge


class EnginePool(RolloutPool):
    actor_class = RecordedEngine


class ChainClient(LearnerClient):
    actor_class = ChainLearner


class Words:
    """A tokenizer by words, in place of one that takes seconds to load."""

    eos_token_id = 0

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1 + hashlib.sha256(word.encode()).digest()[0] for word in text.split()]

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [token for message in messages for token in self.encode(message["content"])]}
