"""Does the loop learn, on a CPU: does the mean reward on held-out shapes rise, and only for real rewards?

    .venv/bin/python benchmarks/learn_cpu.py                      # the whole, on a quiet machine
    .venv/bin/python benchmarks/learn_cpu.py --seeds 1 --steps 10 # a look

A small Llama (0.2M weights) first learns from a corpus in which every kernel is written
under four schedules, as often fast as slow, so that it writes working kernels and prefers none. Then contrastive RL:
each prompt shows two kernels of the task with their speedups, answers are judged for real on this machine (one verdict
a distinct kernel and task), and the product's own rewards, advantages and engine update the weights. The control is the
same run with the rewards of each step shuffled among its answers.

Prints, for real and for shuffled rewards, the change of the mean reward on held-out shapes from before to after RL,
over the seeds, with its 95% interval (Student's t), and exits with 1 unless the first lies above zero and the second
does not.

The vocabulary is a byte-pair encoding of the corpus, so that an answer is 10 to 20 tokens long. With words and signs as
tokens it was 100, and a loss of 0.03 a token more than the floor left a third of the answers broken: nothing to learn
from, and a judgement for each. Look at "correct" after SFT first; it should be above 60%.

What it does not show: that the policy invents anything. It learns which of the schedules it knows are fast, and that
this holds for shapes it has not seen.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A benchmark beside this one has the name of a room, search, and Python looks for it here first.
sys.path.remove(str(Path(__file__).resolve().parent))

import numpy as np

from archive.types import Record
from judge.api import Judge
from judge.settings import JudgeSettings
from judge.types import Candidate, Status, Verdict
from learner.advantages import group_advantages
from learner.engine import Engine
from learner.rewards import RunningReward, raw_reward
from learner.settings import LearnerSettings, LoraSettings
from learner.types import Sample
from search.fingerprint import fingerprint
from search.samplers import sample_exemplars
from search.settings import SearchSettings
from tasks.loader import parse_task
from tasks.types import Task

FAMILIES = {
    # name: (PyTorch, C++ of one element v)
    "relu_scale": ("torch.relu(x) * 0.5", "v > 0 ? 0.5f * v : 0.0f"),
    "square_shift": ("x * x + 1.5", "v * v + 1.5f"),
}
TRAIN_SHAPES = ((256, 1024), (1024, 512))
HELD_OUT_SHAPES = ((512, 768), (384, 1536))
SCHEDULES = {
    "simd": "#pragma omp simd\n for (long i = 0; i < n * m; i++) {{ float v = x[i]; y[i] = {e}; }}",
    "rows": "for (long r = 0; r < n; r++) for (long c = 0; c < m; c++)"
    " {{ float v = x[r * m + c]; y[r * m + c] = {e}; }}",
    "columns": "for (long c = 0; c < m; c++) for (long r = 0; r < n; r++)"
    " {{ float v = x[r * m + c]; y[r * m + c] = {e}; }}",
    "volatile": "for (long i = 0; i < n * m; i++) {{ volatile float t = x[i]; float v = t; t = {e}; y[i] = t; }}",
}
TASK = """import torch
ROWS = {rows}
COLS = {cols}
class Model(torch.nn.Module):
    def forward(self, x):
        return {torch}
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return []
"""
CANDIDATE = '''import torch
import warpsmith
kernel = warpsmith.load_cpp(r"""
extern "C" void f(const float* x, float* y, long n, long m) {{
 {body}
}}
""")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.f(x, y, x.shape[0], x.shape[1])
        return y
'''
END, ASK, ANSWER = "<end>", "<ask>", "<answer>"
VOCABULARY = 192


def kernel_text(family: str, schedule: str) -> str:
    """The body that the policy writes; the rest of the candidate is the same for all."""
    return SCHEDULES[schedule].format(e=FAMILIES[family][1])


@dataclass
class Verdicts:
    """Rewards of kernels, judged once each."""

    judge: Judge
    tasks: dict[tuple[str, tuple[int, int]], Task]
    kept: Path | None
    known: dict[tuple[str, str], float] = field(default_factory=dict)
    judged: int = 0

    def reward(self, family: str, shape: tuple[int, int], body: str) -> float:
        task, code = self.tasks[family, shape], CANDIDATE.format(body=body)
        key = (task.task_id, fingerprint(code))
        if key not in self.known:
            for _ in range(3):  # the judge's own failure says nothing of the kernel: it is judged again
                verdict = self.judge.judge(task, Candidate(code=code))
                self.judged += 1
                if verdict.status is not Status.JUDGE_ERROR:
                    break
            else:
                raise SystemExit(f"the judge failed three times: {verdict.message}")
            self.known[key] = raw_reward(str(verdict.status), verdict.score, {})
            if self.kept is not None:
                self.kept.write_text(json.dumps([[*known, value] for known, value in self.known.items()]))
        return self.known[key]

    def exemplars(self, family: str, shape: tuple[int, int]) -> list[Record]:
        """The four schedules as records of the archive, their text in ``analysis``."""
        task, records = self.tasks[family, shape], []
        for name in SCHEDULES:
            body = kernel_text(family, name)
            speedup = self.reward(family, shape, body)
            records.append(
                Record(
                    record_id=name,
                    run_id="",
                    task_name=task.name,
                    task_id=task.task_id,
                    source="expert",
                    operator="expert",
                    code=CANDIDATE.format(body=body),
                    analysis=body,
                    verdict=Verdict(status=Status.CORRECT, speedup=speedup),
                )
            )
        return records


@dataclass
class Words:
    """A byte-pair encoding of the corpus; digits stay apart, so that an unseen shape has no unseen word."""

    bpe: Any
    ids: dict[str, int]

    def encode(self, text: str) -> list[int]:
        found: list[int] = self.bpe.encode(text).ids
        return found

    def decode(self, ids: list[int]) -> str:
        return "".join(self.bpe.id_to_token(i) for i in itertools.takewhile(lambda i: i != self.ids[END], ids))


def make_words() -> Words:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = [kernel_text(family, schedule) for family in FAMILIES for schedule in SCHEDULES]
    texts += [f"{torch} shape x\nspeedup ." for torch, _ in FAMILIES.values()]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    alphabet = sorted(set("".join(texts)) | set("0123456789"))
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=[END, ASK, ANSWER], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return Words(bpe, bpe.get_vocab())


def prompt_ids(
    words: Words, family: str, shape: tuple[int, int], rng: np.random.Generator, verdicts: Verdicts
) -> tuple[int, ...]:
    """The task, then two kernels of distinct schedules with their speedups, the slower first."""
    ids = [words.ids[ASK], *words.encode(f"{FAMILIES[family][0]} shape {shape[0]}x{shape[1]}\n")]
    # Exemplars are scored on a training shape: nothing of a held-out one is shown.
    for record in sample_exemplars(verdicts.exemplars(family, TRAIN_SHAPES[0]), SearchSettings(), rng):
        ids += words.encode(f"speedup {record.score:.1f}\n{record.analysis}\n")
    return (*ids, words.ids[ANSWER])


def write_model(folder: Path, words: Words, seed: int) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(words.ids),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=words.ids[ASK],
        eos_token_id=words.ids[END],
        pad_token_id=words.ids[END],
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")  # published folders carry one; nothing here reads it
    return folder


def sample(
    path: str, prompts: list[tuple[int, ...]], size: int, max_tokens: int, end: int, seed: int
) -> list[list[tuple[tuple[int, ...], tuple[float, ...]]]]:
    """``size`` answers to each prompt by the published weights, as (tokens, their log p), END included."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    longest = max(map(len, prompts))
    rows = [[end] * (longest - len(p)) + list(p) for p in prompts for _ in range(size)]
    mask = [[0] * (longest - len(p)) + [1] * len(p) for p in prompts for _ in range(size)]
    torch.manual_seed(seed)
    with torch.no_grad():
        out = model.generate(
            torch.tensor(rows),
            attention_mask=torch.tensor(mask),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_tokens,
            output_scores=True,
            return_dict_in_generate=True,
            pad_token_id=end,
            eos_token_id=end,
        )
    tokens = out.sequences[:, longest:]
    logprobs = torch.stack([torch.log_softmax(s, dim=-1) for s in out.scores], dim=1)
    taken = logprobs.gather(2, tokens[:, :, None]).squeeze(2)
    answers = []
    for ids, values in zip(tokens.tolist(), taken.tolist(), strict=True):
        length = ids.index(end) + 1 if end in ids else len(ids)
        answers.append((tuple(ids[:length]), tuple(values[:length])))
    return [answers[i : i + size] for i in range(0, len(answers), size)]


def run(seed: int, shuffled: bool, *, arguments: argparse.Namespace, verdicts: Verdicts, work: Path) -> dict[str, Any]:
    """RL from where the seed's SFT ended, which both arms share: the rewards as they are, or shuffled.

    The result holds the mean reward on held-out shapes before and after.
    """
    words, after_sft = make_words(), work / "after-sft"
    model = work / "model"
    if not model.exists():
        write_model(model, words, seed)
    settings = LearnerSettings(
        lr=arguments.lr,
        sft_lr=5e-3,
        lora=LoraSettings(rank=0),
        # Without it the control does not stand still: noise drives it away from what SFT has taught.
        kl_coefficient=0.1,
        threads=1,  # matrices this small are no faster on two
        micro_batch_tokens=4096,
        gradient_checkpointing=False,
    )
    engine = Engine(model, settings, temperature=1.0, work_dir=work / "engine", seed=seed)
    try:
        if after_sft.exists():
            engine.load(after_sft)
        else:
            print(f"seed {seed} SFT loss {_supervise(engine, words, verdicts, arguments, seed):.3f}", flush=True)
            engine.save(after_sft)
        before = evaluate(engine, words, verdicts, work, seed)
        rng, smoothing, rewards = np.random.default_rng([seed, int(shuffled)]), RunningReward(1.5), list[float]()
        for step in range(arguments.steps):
            rewards.append(_rl_step(engine, words, verdicts, arguments, work, rng, smoothing, shuffled, step))
        after = evaluate(engine, words, verdicts, work, seed)
    finally:
        engine.close()
    return {"seed": seed, "shuffled": shuffled, "before": before, "after": after, "train": rewards}


def _supervise(engine: Engine, words: Words, verdicts: Verdicts, arguments: argparse.Namespace, seed: int) -> float:
    """SFT with a falling learning rate; the last loss, whose floor is the choice among the schedules."""
    rng, loss = np.random.default_rng([seed, 7]), math.nan
    for number in range(arguments.sft_updates):
        share = 1.0 - 0.95 * number / arguments.sft_updates
        loss = engine.sft_step(_corpus(words, rng, verdicts), share).metrics["loss"]
    return loss


def _corpus(words: Words, rng: np.random.Generator, verdicts: Verdicts) -> list[Sample]:
    samples = []
    for _ in range(16):
        family, schedule = str(rng.choice(list(FAMILIES))), str(rng.choice(list(SCHEDULES)))
        shape = TRAIN_SHAPES[rng.integers(len(TRAIN_SHAPES))]
        samples.append(
            Sample(
                prompt_ids=prompt_ids(words, family, shape, rng, verdicts),
                completion_ids=(*words.encode(kernel_text(family, schedule)), words.ids[END]),
            )
        )
    return samples


def _rl_step(
    engine: Engine,
    words: Words,
    verdicts: Verdicts,
    arguments: argparse.Namespace,
    work: Path,
    rng: np.random.Generator,
    smoothing: RunningReward,
    shuffled: bool,
    step: int,
) -> float:
    tasks = [(family, TRAIN_SHAPES[rng.integers(len(TRAIN_SHAPES))]) for family in FAMILIES for _ in range(2)]
    prompts = [prompt_ids(words, family, shape, rng, verdicts) for family, shape in tasks]
    version = engine.publish(work / "weights")
    groups = sample(version.path, prompts, arguments.group, 128, words.ids[END], int(rng.integers(2**31)))
    raw = np.array(
        [
            [verdicts.reward(*task, words.decode(list(ids))) for ids, _ in group]
            for task, group in zip(tasks, groups, strict=True)
        ]
    )
    used = rng.permutation(raw.reshape(-1)).reshape(raw.shape) if shuffled else raw
    samples = []
    for (family, shape), prompt, group, rewards in zip(tasks, prompts, groups, used, strict=True):
        smoothed = smoothing.smooth_group(f"{family} {shape}", list(rewards))
        for (ids, logprobs), advantage in zip(group, group_advantages(np.array(smoothed), "grpo"), strict=True):
            samples.append(
                Sample(
                    prompt_ids=prompt,
                    completion_ids=ids,
                    behaviour_logprobs=logprobs,
                    advantage=float(advantage),
                    policy_version=engine.policy_version,
                    group_id=f"{step} {family} {shape}",
                )
            )
    engine.step(samples)
    return float(raw.mean())


def evaluate(engine: Engine, words: Words, verdicts: Verdicts, work: Path, seed: int) -> dict[str, float]:
    """Answers to prompts of held-out shapes: their mean reward, the share that is correct, the share of each schedule.

    The same prompts and sampling seed at each call.
    """
    rng = np.random.default_rng([seed, 9])
    tasks = [(family, shape) for family in FAMILIES for shape in HELD_OUT_SHAPES for _ in range(4)]
    prompts = [prompt_ids(words, family, shape, rng, verdicts) for family, shape in tasks]
    version = engine.publish(work / "weights")
    groups = sample(version.path, prompts, 8, 128, words.ids[END], seed)
    texts = [(task, words.decode(list(ids))) for task, group in zip(tasks, groups, strict=True) for ids, _ in group]
    rewards = [verdicts.reward(*task, text) for task, text in texts]
    shares = {
        name: float(np.mean([text == kernel_text(family, name) for (family, _), text in texts])) for name in SCHEDULES
    }
    return {"reward": float(np.mean(rewards)), "correct": float(np.mean([r > 0 for r in rewards])), **shares}


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and 95% interval by Student's t; infinite for a single value."""
    from scipy.stats import t

    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    half = float(t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="contrastive updates")
    parser.add_argument("--sft-updates", type=int, default=200)
    parser.add_argument("--group", type=int, default=16, help="answers to each prompt")
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--json", type=Path, help="write all numbers there; what is there is not run again")
    parser.add_argument("--verdicts", type=Path, help="keep measured speedups there, and use those that are there")
    parser.add_argument("--work", type=Path, help="keep models and checkpoints there, and go on from those")
    arguments = parser.parse_args()
    began, results = time.monotonic(), list[dict[str, Any]]()
    if arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    tasks = {
        (family, shape): parse_task(TASK.format(rows=shape[0], cols=shape[1], torch=FAMILIES[family][0]))
        for family in FAMILIES
        for shape in (*TRAIN_SHAPES, *HELD_OUT_SHAPES)
    }
    with Judge(JudgeSettings(pairs=3, calls=6)) as judge:
        verdicts = Verdicts(judge, tasks, arguments.verdicts)
        if arguments.verdicts and arguments.verdicts.exists():
            verdicts.known = {(a, b): value for a, b, value in json.loads(arguments.verdicts.read_text())}
        for (family, shape), schedule in itertools.product(tasks, SCHEDULES):
            value = verdicts.reward(family, shape, kernel_text(family, schedule))
            print(f"{family:14} {shape!s:14} {schedule:10} {value:.2f}x", flush=True)
        print(f"judged after {time.monotonic() - began:.0f} s", flush=True)
        done = {(result["seed"], result["shuffled"]) for result in results}
        with tempfile.TemporaryDirectory() as folder:
            root = arguments.work or Path(folder)
            for shuffled, seed in itertools.product((False, True), range(arguments.seeds)):
                if (seed, shuffled) in done:
                    continue
                work = root / f"seed-{seed}"
                work.mkdir(parents=True, exist_ok=True)
                result = run(seed, shuffled, arguments=arguments, verdicts=verdicts, work=work)
                results.append(result)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
                kind, before, after = ("real", "shuffled")[shuffled], result["before"], result["after"]
                shares = ", ".join(f"{name} {before[name]:.0%} -> {after[name]:.0%}" for name in SCHEDULES)
                print(
                    f"seed {seed} {kind:8} held-out: reward {before['reward']:.3f} -> {after['reward']:.3f}, correct "
                    f"{before['correct']:.0%} -> {after['correct']:.0%}, {shares}; {time.monotonic() - began:.0f} s",
                    flush=True,
                )
        print(f"{verdicts.judged} kernels judged")
    spans = {}
    for shuffled in (False, True):
        changes = [r["after"]["reward"] - r["before"]["reward"] for r in results if r["shuffled"] is shuffled]
        mean, low, high = spans[shuffled] = interval(changes)
        print(f"{'shuffled' if shuffled else 'real':8} rewards: change {mean:+.3f} [{low:+.3f}, {high:+.3f}]")
    sys.exit(0 if spans[False][1] > 0 and spans[True][1] <= 0 else 1)


if __name__ == "__main__":
    main()
