"""One RL step side by side: the same model, prompts, lengths, group size and loss through warpsmith and through TRL.

    .venv/bin/pip install trl==1.16.0 datasets          # the other side; without it only warpsmith is measured
    .venv/bin/python benchmarks/rl_step.py              # tiny-random on a CPU, about a minute
    .venv/bin/python benchmarks/rl_step.py --model smollm2-135m-instruct --prompts 4 --max-tokens 256

Each side runs in a process of its own, one after the other. The loss is GRPO's with token-level normalisation (TRL:
loss_type "dapo"), clips 0.2 and 0.28, no KL term, full weights in float32, one pass, all answers of a step in one
update. warpsmith samples with vLLM and puts new weights into it after each update; TRL samples with transformers'
generate, as it does on a CPU, and needs no sync. The first step of each side is left out.

Tokens of learning count each answer with its prompt on both sides, although warpsmith computes a group's prompt once:
what is compared is how fast the same work gets done. With the tiny model nearly all of it is the vocabulary's (49,152
words beside 64 hidden values), so its ratio says little about real models. Memory is the peak of
resident memory, summed over a side's processes that hold a model.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LR = 1e-5
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
SENTENCES = (
    "Write a C++ kernel that adds a bias to each row of a matrix and applies relu.",
    "The reference makes three passes over memory; fuse them into one.",
    "Keep partial sums in registers and let the compiler vectorise the inner loop.",
    "Explain first what bounds the running time, then give the code.",
)


def prompts_of(count: int) -> list[str]:
    return [f"Task {i}. " + " ".join(SENTENCES[(i + k) % len(SENTENCES)] for k in range(8)) for i in range(count)]


def reward_of(text: str) -> float:
    """Something that differs between answers and costs nothing."""
    return (sum(text.encode("utf-8", "replace")) % 997) / 997


def warpsmith_side(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    import numpy as np

    from actors.pools import LearnerClient, RolloutPool
    from actors.sync import sync_weights
    from cluster.config import load_config
    from cluster.session import ray_cluster
    from learner.advantages import group_advantages
    from learner.pretrained import prepare_model
    from learner.types import Sample
    from search.types import Prompt

    config = load_config(
        None,
        [
            f"rollout.group_size={arguments.group}",
            f"rollout.max_tokens={arguments.max_tokens}",
            "rollout.temperature=1.0",
            "rollout.dtype=float32",
            f"rollout.threads={arguments.threads}",
            f"rollout.max_num_seqs={arguments.prompts * arguments.group}",
            f"learner.threads={arguments.threads}",
            f"learner.lr={LR}",
            "learner.lora.rank=0",
            "learner.kl_coefficient=0.0",
            "learner.dtype=float32",
            f"learner.micro_batch_tokens={max(arguments.micro_batch_tokens, 2560)}",
        ],
    )
    model = prepare_model(arguments.model)
    prompts = [
        Prompt(prompt_id=f"p{i}", task_name="t", operator="vanilla", messages=({"role": "user", "content": text},))
        for i, text in enumerate(prompts_of(arguments.prompts))
    ]
    probe, steps = tuple(range(5, 60)), []
    with (
        ray_cluster(config),
        RolloutPool(model, config.rollout, config.timeouts, seed=0) as rollout,
        LearnerClient(model, config.learner, config.timeouts, temperature=1.0, work_dir=work, seed=0) as learner,
    ):
        learner.wait_ready()
        rollout.wait_ready()
        for step in range(arguments.steps + 1):
            clock = [time.perf_counter()]
            completions = rollout.generate(prompts)
            clock.append(time.perf_counter())
            samples = []
            for start in range(0, len(completions), arguments.group):
                group = completions[start : start + arguments.group]
                values = group_advantages(np.array([reward_of(c.text) for c in group]), "grpo")
                samples += [
                    Sample(
                        prompt_ids=c.prompt_token_ids,
                        completion_ids=c.token_ids,
                        behaviour_logprobs=c.logprobs,
                        advantage=float(value),
                        policy_version=c.policy_version,
                    )
                    for c, value in zip(group, values, strict=True)
                ]
            learner.step(samples)
            clock.append(time.perf_counter())
            sync_weights(learner, rollout, work / "weights", probe, max_jump=1.0)
            clock.append(time.perf_counter())
            generated = sum(len(c.token_ids) for c in completions)
            if step:
                steps.append(
                    {
                        "generation": clock[1] - clock[0],
                        "learning": clock[2] - clock[1],
                        "sync": clock[3] - clock[2],
                        "step": clock[3] - clock[0],
                        "completion_tokens": generated,
                        "learned_tokens": generated + sum(len(c.prompt_token_ids) for c in completions),
                    }
                )
        memory = sum(_peak_mb(pid) for pid in (*rollout.pids, learner.pid) if pid)
    return _totals(steps) | {"memory_mb": memory}


def trl_side(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from learner.pretrained import prepare_model

    torch.set_num_threads(arguments.threads)
    folder = prepare_model(arguments.model)
    steps: list[dict[str, float]] = []
    now: dict[str, float] = {}

    class Timed(GRPOTrainer):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = super()._generate(*args, **kwargs)
            now["generation"] = now.get("generation", 0.0) + time.perf_counter() - began
            return result

        def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
            result = super()._generate_and_score_completions(*args, **kwargs)
            now["completion_tokens"] = float(result["completion_mask"].sum())
            now["learned_tokens"] = now["completion_tokens"] + float(result["prompt_mask"].sum())
            return result

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            now.clear()
            now["began"] = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            whole = time.perf_counter() - now.pop("began")
            steps.append({**now, "step": whole, "learning": whole - now["generation"], "sync": 0.0})

    size = arguments.prompts * arguments.group
    trainer = Timed(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
        reward_funcs=lambda completions, **_: [reward_of(c[0]["content"]) for c in completions],
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": text}]} for text in prompts_of(arguments.prompts)]
        ),
        args=GRPOConfig(
            output_dir=str(work / "trl"),
            use_cpu=not torch.cuda.is_available(),
            per_device_train_batch_size=size,
            num_generations=arguments.group,
            max_completion_length=arguments.max_tokens,
            max_steps=arguments.steps + 1,
            learning_rate=LR,
            lr_scheduler_type="constant",
            beta=0.0,
            loss_type="dapo",
            epsilon=CLIP_LOW,
            epsilon_high=CLIP_HIGH,
            temperature=1.0,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to=[],
            bf16=False,
            logging_steps=1000,
            disable_tqdm=True,
        ),
        callbacks=[Clock()],
    )
    trainer.train()
    return _totals(steps[1:]) | {"memory_mb": _peak_mb(os.getpid())}


def _totals(steps: list[dict[str, float]]) -> dict[str, Any]:
    total = {name: sum(step[name] for step in steps) for name in steps[0]}
    return {
        "generation_tokens_s": total["completion_tokens"] / total["generation"],
        "learning_tokens_s": total["learned_tokens"] / total["learning"],
        "step_tokens_s": total["learned_tokens"] / total["step"],
        "sync_s": total["sync"] / len(steps),
        "step_s": total["step"] / len(steps),
        "completion_tokens": total["completion_tokens"] / len(steps),
    }


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _measure(side: str, given: list[str]) -> dict[str, Any] | None:
    """The side's numbers from a process of its own; None, and why, when it cannot run."""
    # Other work on the machine slows one side and not the other: the ratios hold for a quiet one only.
    print(f"{side}: load of the machine before it starts {os.getloadavg()[0]:.1f}", file=sys.stderr)
    command = [sys.executable, __file__, *given, "--side", side]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{side}: failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}", file=sys.stderr)
        return None
    numbers: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny-random")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2, help="measured ones, after one that warms up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--micro-batch-tokens", type=int, default=4096)
    parser.add_argument("--side", choices=("warpsmith", "trl"), help="only this one, its numbers as JSON")
    arguments = parser.parse_args()
    if arguments.side:
        with tempfile.TemporaryDirectory() as folder:
            side = warpsmith_side if arguments.side == "warpsmith" else trl_side
            print(json.dumps(side(arguments, Path(folder))), flush=True)
        return
    ours = _measure("warpsmith", sys.argv[1:])
    theirs = None
    if all(importlib.util.find_spec(name) for name in ("trl", "datasets")):
        theirs = _measure("trl", sys.argv[1:])
    else:
        print("TRL is not installed (pip install trl datasets): only warpsmith is measured", file=sys.stderr)
    print(f"{'':22} {'warpsmith':>12} {'TRL':>12} {'ratio':>8}")
    for name in ours or theirs or {}:
        one, other = (side[name] if side else None for side in (ours, theirs))
        ratio = f"{one / other:8.2f}" if one and other else f"{'':8}"
        cells = [f"{value:12.1f}" if value is not None else f"{'not run':>12}" for value in (one, other)]
        print(f"{name:22} {' '.join(cells)} {ratio}")
    sys.exit(0 if ours else 1)


if __name__ == "__main__":
    main()
