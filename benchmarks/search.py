"""Four ways to search at the same number of completions: best-of-N, contrast, evolution, and both.

    .venv/bin/python benchmarks/search.py                                        # a simulated model and judge, seconds
    .venv/bin/python benchmarks/search.py --model openai:NAME --base-url URL --tasks softmax gelu --completions 64

Prints, per way, the best speedup after N completions: geometric mean over tasks and seeds with its 95% bootstrap
interval, the ratio to best-of-N, and the share of answers that were correct. Every way gets the same completions; the
sweep, which asks no model, is left out of all of them.

Without --model the model is simulated: a kernel is a point of 12 switches, each of which makes it faster or slower by a
fixed factor; an answer to a prompt without exemplars draws all switches by chance, an answer to one with exemplars
copies each switch from one of the kernels shown and flips a few, and a third of the answers is wrong. That says how
the ways use what they are shown, and nothing about a real model.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

# This file has the name of a room, and Python looks for it here first.
sys.path.remove(str(Path(__file__).resolve().parent))

import numpy as np

from actors.endpoint import EndpointModel, EndpointSettings
from actors.models import Models
from actors.types import JudgeJob, JudgeResult
from archive.store import Archive
from cluster.config import load_config
from judge.api import Judge
from judge.types import Status, Verdict
from search.operators import expert_completion
from search.settings import PRESETS, EvolutionSettings, SearchSettings
from search.types import Completion, Prompt
from serving.evolution import evolve_task
from serving.optimizer import CONFIRM, Evaluators, Workbench
from tasks.loader import load_task, parse_task
from tasks.types import Task

SWITCHES = 12
_EVOLUTION = {"sweep_trials": 0, "transplants": 0, "batches": 0, "edits": 0}
WAYS: dict[str, EvolutionSettings] = {
    "best-of-N": PRESETS["best-of-n"],
    "contrast": PRESETS["cuda-l1"],
    "evolution": EvolutionSettings.model_validate(
        {**_EVOLUTION, "operators": ("translate", "repair", "edit", "crossover", "fuse")}
    ),
    "both": EvolutionSettings.model_validate(
        {**_EVOLUTION, "operators": ("translate", "repair", "edit", "crossover", "fuse", "contrast")}
    ),
}


@dataclass
class SimulatedModel:
    """Stands for the policy; see the module's docstring."""

    rng: np.random.Generator
    asked: int = 0

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [Completion(prompt_id=prompt.prompt_id, index=0, text=self._answer(prompt)) for prompt in prompts]

    def count_tokens(self, messages: Sequence[object]) -> int:
        return 1

    def _answer(self, prompt: Prompt) -> str:
        self.asked += 1
        text = prompt.messages[0]["content"]
        shown = [[int(bit) for bit in found] for found in re.findall(r"switches = '([01]+)'", text)]
        if shown:
            switches = [shown[self.rng.integers(len(shown))][place] for place in range(SWITCHES)]
            flips = self.rng.random(SWITCHES) < 1.5 / SWITCHES
            switches = [bit ^ int(flip) for bit, flip in zip(switches, flips, strict=True)]
        else:
            switches = [int(bit) for bit in self.rng.integers(0, 2, SWITCHES)]
        wrong = self.rng.random() < 1 / 3
        line = f"    switches = '{''.join(map(str, switches))}'"
        rest = f"    wrong = {bool(wrong)}\n    number = {self.asked}"
        if prompt.edits:
            old = prompt.edits[prompt.edits.index("    switches") :].rstrip()
            return f"<<<<<<< SEARCH\n{old}\n=======\n{line}\n{rest}\n>>>>>>> REPLACE"
        return expert_completion(f"class ModelNew:\n{line}\n{rest}\n", "simulated")


@dataclass
class SimulatedJudges:
    """Knows each switch's factor: e to the power of a normal number of standard deviation 0.15."""

    factors: np.ndarray  # [SWITCHES], logarithms

    def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            found = re.search(r"switches = '([01]+)'", job.candidate.code)
            if found is None or "wrong = True" in job.candidate.code:
                status = Status.CORRECT if found is None else Status.INCORRECT
                speedup = 1.0 if found is None else None
                yield JudgeResult(job=job, verdict=Verdict(status=status, speedup=speedup))
                continue
            signs = np.array([1 if bit == "1" else -1 for bit in found[1]])
            speedup = float(np.exp(signs @ self.factors))
            yield JudgeResult(job=job, verdict=Verdict(status=Status.CORRECT, speedup=speedup, speedup_low=speedup))


@dataclass
class RealJudges:
    """The judge of this machine, one candidate after the other."""

    judge_: Judge

    def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            yield JudgeResult(job=job, verdict=self.judge_.judge(job.task, job.candidate))


@dataclass
class Tally:
    """What one way reached."""

    best: list[float] = field(default_factory=list)
    correct: int = 0
    asked: int = 0


def simulated_task(number: int) -> Task:
    source = f"import torch\nN = {number}\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    return parse_task(f"{source}def get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n")


def search_once(
    task: Task, plan: EvolutionSettings, models: Models, judges: Evaluators, completions: int, seed: int
) -> tuple[float, int, int]:
    """(best speedup of a correct answer, 1 when there is none; correct answers; answers)."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(str(Path(folder) / "archive.db"))
        settings = SearchSettings(max_prompt_tokens=100_000)
        bench = Workbench(rollout=models, evaluators=judges, archive=archive, search=settings, seed=seed)
        evolve_task(task, bench, plan, models, max_candidates=completions)
        written = [r for r in archive.records() if r.source in models.names and r.operator != CONFIRM]
        archive.close()
    scores = [record.score for record in written if record.score > 0]
    return max([*scores, 1.0]), len(scores), len(written)


def interval(logs: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """95% bootstrap interval of the geometric mean."""
    means = rng.choice(logs, (4000, len(logs))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return math.exp(low), math.exp(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=[])
    parser.add_argument("--completions", type=int, default=48)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", help="openai:NAME; the simulated one if left out")
    parser.add_argument("--base-url", default="https://api.openai.com/v1")
    arguments = parser.parse_args()
    tally = {way: Tally() for way in WAYS}
    with ExitStack() as stack:
        make: Callable[[Task, int], tuple[Models, Evaluators]]
        if arguments.model:
            tasks = [load_task(name) for name in arguments.tasks or ["softmax", "gelu", "swiglu"]]
            settings = EndpointSettings(name=arguments.model.removeprefix("openai:"), base_url=arguments.base_url)
            endpoint = EndpointModel(settings, api_key=os.environ.get("OPENAI_API_KEY", ""))
            endpoint.check()
            judges = RealJudges(stack.enter_context(Judge(load_config().judge)))
            make = lambda task, seed: (Models([endpoint]), judges)  # noqa: E731
        else:
            tasks = [simulated_task(number) for number in range(8)]

            def make(task: Task, seed: int) -> tuple[Models, Evaluators]:
                factors = np.random.default_rng(int(task.task_id[:8], 16)).normal(0, 0.15, SWITCHES)
                return Models(policy=SimulatedModel(np.random.default_rng(seed))), SimulatedJudges(factors)

        for seed in range(arguments.seeds):
            for task in tasks:
                for way, plan in WAYS.items():
                    models, evaluators = make(task, seed)
                    best, correct, asked = search_once(task, plan, models, evaluators, arguments.completions, seed)
                    tally[way].best.append(best)
                    tally[way].correct += correct
                    tally[way].asked += asked
    _print(tally, f"{len(tasks)} tasks, {arguments.seeds} seeds, {arguments.completions} completions each")


def _print(tally: dict[str, Tally], title: str) -> None:
    rng = np.random.default_rng(0)
    base = np.log(tally["best-of-N"].best)
    print(f"{title}\n{'way':12} {'best':>6} {'95% interval':>14} {'against best-of-N':>24} {'correct':>8} {'asked':>6}")
    for way, one in tally.items():
        logs = np.log(one.best)
        low, high = interval(logs, rng)
        ratio_low, ratio_high = interval(logs - base, rng)
        print(
            f"{way:12} {math.exp(logs.mean()):6.3f} [{low:5.3f}, {high:5.3f}] {math.exp((logs - base).mean()):8.3f}x "
            f"[{ratio_low:5.3f}, {ratio_high:5.3f}] {one.correct / max(one.asked, 1):8.2f} {one.asked:6}"
        )


if __name__ == "__main__":
    main()
