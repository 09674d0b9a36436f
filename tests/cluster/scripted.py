"""A run without engines for tests: the real learner, and a scripted engine and judge.

The scripted engine's answers depend on the weights that were put into it, so a run that samples with other weights than
it should, or from another prompt, gives other batches. Every batch has a hash in metrics.jsonl.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cluster.driver as driver
from actors.types import JudgeJob, JudgeResult
from cluster.config import Config, load_config
from cluster.session import Session
from judge.types import Status, Verdict
from learner.types import WeightsVersion
from search.operators import expert_completion
from search.types import Completion, Prompt
from tasks.experts import expert_kernels

STEPS = 6
TASKS = ["gelu", "logsumexp", "skinny_matmul"]


def config_in(folder: Path, *overrides: str) -> Config:
    return load_config(None, overrides_in(folder, *overrides))


def overrides_in(folder: Path, *overrides: str) -> list[str]:
    return [
        f"run.folder={folder}",
        f"tasks.names={json.dumps(TASKS)}",
        "model.path=tiny-random",
        f"run.steps={STEPS}",
        "run.tasks_per_step=2",
        "run.min_free_disk_gb=0",
        "run.sft_epochs=1",
        "self_supervised.rounds=1",
        "self_supervised.tasks_per_round=2",
        "rollout.group_size=3",
        "learner.lr=1e-3",
        "learner.sft_lr=1e-3",
        "learner.threads=1",
        "learner.dtype=float32",
        "learner.lora.rank=4",
        "learner.keep_versions=3",
        "tracking.wandb=off",
        *overrides,
    ]


class ScriptedEngine:
    """Answers named after the experts' kernels, chosen and altered by a hash of the prompt and of its weights."""

    def __init__(self, tokenizer: Any, group_size: int, stop_at: str = "") -> None:
        self._tokenizer, self._size, self._stop_at = tokenizer, group_size, stop_at
        self._version = WeightsVersion(policy_version=0, path="", sha256="none")
        self.versions: list[tuple[str, int]] = []

    def load_weights(self, version: WeightsVersion) -> None:
        self._version = version

    def probe(self, token_ids: Sequence[int]) -> list[tuple[float, ...]]:
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(self._version.path, dtype=torch.float32)
        ids = torch.tensor([list(token_ids)])
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids).logits[0, :-1], dim=-1)
        return [tuple(logprobs.gather(1, ids[0, 1:, None]).squeeze(1).tolist())]

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if self._stop_at and any(prompt.prompt_id.startswith(self._stop_at) for prompt in prompts):
            raise KeyboardInterrupt
        self.versions += [(prompt.prompt_id, self._version.policy_version) for prompt in prompts]
        return [self._answer(prompt, index) for prompt in prompts for index in range(prompt.samples or self._size)]

    def _answer(self, prompt: Prompt, index: int) -> Completion:
        seed = hashlib.sha256(f"{prompt.messages}{index}{self._version.sha256}".encode()).digest()
        kernels = expert_kernels(prompt.task_name)
        kernel = kernels[seed[0] % len(kernels)]
        # Short ones: of a tiny model's update nearly all the time is the vocabulary's logits of each token here.
        code = f"class ModelNew:\n    OF = '{prompt.task_name} {kernel.quality}'\n    MARK = {seed[1]}\n"
        text = expert_completion(code, "By memory.") if seed[2] % 4 else "I cannot."
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        chat = self._tokenizer.apply_chat_template(list(prompt.messages), add_generation_prompt=True, return_dict=True)
        return Completion(
            prompt_id=prompt.prompt_id,
            index=index,
            text=text,
            prompt_token_ids=tuple(chat["input_ids"]),
            token_ids=(*ids, self._tokenizer.eos_token_id),
            logprobs=tuple(-10.0 - (i + seed[3]) % 7 / 7 for i in range(len(ids) + 1)),
            finish_reason="stop",
            policy_version=self._version.policy_version,
        )


class ScriptedJudge:
    """A speedup by a hash of the code."""

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            seed = hashlib.sha256(job.candidate.code.encode()).digest()
            speedup = 0.5 + seed[0] / 100
            verdict = Verdict(
                status=Status.WIN if speedup > 1.1 else Status.CORRECT,
                speedup=speedup,
                speedup_low=speedup - 0.05,
                speedup_high=speedup + 0.05,
            )
            yield JudgeResult(job=job, verdict=verdict)


def scripted(engines: list[ScriptedEngine], *, learns: bool = True, stop_at: str = "") -> driver.Opener:
    @contextmanager
    def opener(config: Config, model_dir: Path, work_dir: Path, on_event: Any) -> Iterator[Session]:
        from transformers import AutoTokenizer

        from cluster.replay import LocalLearner
        from learner.engine import Engine

        tokenizer = AutoTokenizer.from_pretrained(model_dir)
        engines.append(ScriptedEngine(tokenizer, config.rollout.group_size, stop_at))
        engine = Engine(model_dir, config.learner, temperature=0.6, work_dir=work_dir, seed=0) if learns else None
        try:
            yield Session(
                rollout=engines[-1],
                evaluators=ScriptedJudge(),
                learner=LocalLearner(engine) if engine else None,
                tokenizer=tokenizer,
            )
        finally:
            if engine:
                engine.close()

    return opener


def train(config: Config, **options: Any) -> str:
    said: list[str] = []
    driver.train(config, say=said.append, **options)
    return "\n".join(said)


def batches(folder: Path) -> dict[tuple[str, int], str]:
    """Hash of each update's batch; an update that is there twice is an error."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    keys = [(line["stage"], line["step"]) for line in lines]
    assert len(keys) == len(set(keys)), keys
    return {key: line["batch"] for key, line in zip(keys, lines, strict=True)}


def losses(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line)["learner"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> str:
    """Hash of the weights that were published last."""
    last = max((folder / "weights").glob("v*"), key=lambda path: path.name)
    return hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()
