"""`warpsmith tasks corpus`: supervised samples of generated tasks, as lines for `sft.corpus`.

Work goes in parts of some tasks. After each, the samples are appended and OUT.state.json says how far it came, so that
a build that is killed goes on where it stopped.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from cluster.generated_samples import KINDS, Maker, Scored, samples_of

if TYPE_CHECKING:
    from cluster.config import Config
    from judge.api import Judge
    from tasks.procedural.generate import GeneratedTask
    from tasks.procedural.kernels import Kernel

PART = 8
"""Tasks that are compiled, checked and written together."""
MOST_KERNELS = 8
"""Schedules of a task that are compiled; drawn where there are more."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was asked for."""

    out: Path
    backend: str
    tasks: int
    per_task: int
    split: str
    seed: int
    kinds: tuple[str, ...] = KINDS
    family: str | None = None
    timings: Path | None = None
    """For CUDA: measured elsewhere."""
    judge_share: float = 0.0
    """Of the correct kernels, to be judged as well."""
    most_tokens: int = 2048

    def options(self) -> dict[str, Any]:
        """Those that decide the samples; a build goes on only with the same."""
        return {
            "backend": self.backend,
            "per_task": self.per_task,
            "split": self.split,
            "seed": self.seed,
            "kinds": list(self.kinds),
            "family": self.family,
            "most_tokens": self.most_tokens,
        }


class _State:
    """How far a build came; the file is replaced as a whole."""

    def __init__(self, order: Order) -> None:
        self.path = order.out.with_name(order.out.name + ".state.json")
        self.order = order
        self.tasks, self.size = 0, 0
        self.counts: dict[str, dict[str, int]] = {"family": {}, "kind": {}, "left out": {}, "wrong": {}, "judge": {}}
        self.tokens: list[list[int]] = []
        self.ratios: list[float] = []

    def restore(self) -> bool:
        """Whether an earlier build goes on. Raises ConfigError: it had other options, or its file is gone."""
        if not self.path.exists():
            if self.order.out.exists():
                raise ConfigError(f"{self.order.out}: exists and was not begun by this command; choose another file")
            return False
        kept = json.loads(self.path.read_text("utf-8"))
        if kept["options"] != self.order.options():
            others = _difference(kept["options"], self.order.options())
            raise ConfigError(
                f"{self.order.out}: was begun with other options ({others}); "
                f"choose another file, or remove it and {self.path.name}"
            )
        if not self.order.out.exists() or self.order.out.stat().st_size < kept["size"]:
            raise ConfigError(f"{self.order.out}: is shorter than {self.path.name} says; remove both and begin anew")
        self.tasks, self.size, self.counts = kept["tasks"], kept["size"], kept["counts"]
        self.tokens, self.ratios = kept["tokens"], kept["ratios"]
        os.truncate(self.order.out, self.size)  # what was written after the last commit
        return True

    def commit(self) -> None:
        kept = {
            "options": self.order.options(),
            "tasks": self.tasks,
            "size": self.size,
            "counts": self.counts,
            "tokens": self.tokens,
            "ratios": self.ratios,
        }
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(json.dumps(kept), "utf-8")
        temporary.replace(self.path)

    def count(self, what: str, name: str, number: int = 1) -> None:
        self.counts[what][name] = self.counts[what].get(name, 0) + number


def build_corpus(order: Order, config: Config, say: Callable[[str], None]) -> int:
    """Write the samples, print the summary, return the exit code: 1 when a generated kernel was wrong.

    Raises ConfigError: options that do not fit together, a file of another build, an unusable file of timings.
    """
    from tasks.procedural.generate import tasks_of

    unknown = [kind for kind in order.kinds if kind not in KINDS]
    if unknown:
        raise ConfigError(f"--kinds: no {unknown[0]}; choose among {', '.join(KINDS)}")
    timings = read_timings(order.timings) if order.timings else {}
    tasks = tasks_of(order.split, order.seed, order.family)
    state = _State(order)
    if state.restore():
        say(f"goes on after {state.tasks} tasks")
    began, done = time.monotonic(), state.tasks
    with ExitStack() as stack:
        judge = _judge(order, config, stack, say)
        maker = _maker(order, config, judge)
        for _ in itertools.islice(tasks, state.tasks):
            pass
        while state.tasks < order.tasks:
            part = list(itertools.islice(tasks, min(PART, order.tasks - state.tasks)))
            lines: list[dict[str, Any]] = []
            for task, scored in _scored(part, order, config, timings, state):
                made = samples_of(task, scored, maker)
                lines += made.lines
                for reason in made.left_out:
                    state.count("left out", reason)
                _compare(task, scored, order, judge, state, say)
            _append(order.out, lines, state)
            state.tasks += len(part)
            state.commit()
            left = (time.monotonic() - began) / (state.tasks - done) * (order.tasks - state.tasks)
            say(f"{state.tasks}/{order.tasks} tasks, {len(state.tokens)} samples, {left / 60:.0f} min left")
    for line in summary(state.counts, state.tokens, state.ratios):
        say(line)
    return 1 if state.counts["wrong"] else 0


def summary(
    counts: Mapping[str, Mapping[str, int]], tokens: Sequence[Sequence[int]], ratios: Sequence[float]
) -> Iterator[str]:
    """The lines of a build's end."""
    yield f"{len(tokens)} samples"
    for what in ("family", "kind"):
        yield f"  by {what}: " + ", ".join(f"{name} {n}" for name, n in sorted(counts[what].items()))
    if tokens:
        for name, numbers in zip(("prompt", "answer"), zip(*tokens, strict=True), strict=True):
            ordered = sorted(numbers)
            yield (
                f"  tokens of the {name}: median {statistics.median(ordered):.0f}, "
                f"95% below {ordered[int(len(ordered) * 0.95)]}, longest {ordered[-1]}"
            )
    for what, text in (("left out", "left out"), ("wrong", "wrong kernels, bugs of the generator"), ("judge", "judge")):
        for name, number in sorted(counts[what].items()):
            yield f"  {text}: {number} {name}"
    if ratios:
        yield f"  judge's speedup over this command's: median {statistics.median(ratios):.2f}"


def read_timings(path: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """Timings by seed and schedule. Raises ConfigError, naming the line, for what is none."""
    found = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--timings: {path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            key = int(line["seed"]), schedule_key(line["schedule"])
            found[key] = {
                "correct": bool(line["correct"]),
                "microseconds": float(line.get("microseconds") or 0.0),
                "eager_microseconds": float(line.get("eager_microseconds") or 0.0),
            }
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"--timings: {path}: line {number}: wants seed, schedule, correct, microseconds, eager_microseconds"
            ) from None
    return found


def schedule_key(schedule: Any) -> str:
    """The same text for a schedule as a dict, as pairs, or as JSON of either."""
    given = json.loads(schedule) if isinstance(schedule, str) else schedule
    return json.dumps(sorted((str(name), value) for name, value in dict(given).items()))


def _scored(
    part: Sequence[GeneratedTask],
    order: Order,
    config: Config,
    timings: Mapping[tuple[int, str], Mapping[str, Any]],
    state: _State,
) -> list[tuple[GeneratedTask, list[Scored]]]:
    """The correct kernels of some tasks; wrong ones are counted."""
    chosen = [(task, _drawn(task, order, config.judge.threads)) for task in part]
    if order.backend == "cuda":
        return [(task, _with_timings(task, kernels, timings, state)) for task, kernels in chosen]
    from cluster.generated_cpp import measure

    results = []
    for (task, _), measured in zip(chosen, measure(chosen, config.judge), strict=True):
        scored = []
        for one in measured:
            if one.correct:
                times = {"microseconds": one.microseconds, "eager_microseconds": one.eager_microseconds}
                scored.append(Scored(kernel=one.kernel, **times))
            else:
                state.count("wrong", f"{task.task.name} {dict(one.kernel.schedule)}: {one.fault}")
        results.append((task, scored))
    return results


def _drawn(task: GeneratedTask, order: Order, threads: int) -> list[Kernel]:
    """Some of the kernels, the same for the same seed. Threads are left out where there is one: they change nothing."""
    kernels = task.kernels(order.backend)
    if threads == 1:
        kernels = [kernel for kernel in kernels if ("threads", "all") not in kernel.schedule]
    if order.backend == "cuda" or len(kernels) <= MOST_KERNELS:
        return kernels
    return random.Random(f"kernels {task.seed}").sample(kernels, MOST_KERNELS)


def _with_timings(
    task: GeneratedTask,
    kernels: Sequence[Kernel],
    timings: Mapping[tuple[int, str], Mapping[str, Any]],
    state: _State,
) -> list[Scored]:
    if not timings:
        return [Scored(kernel=kernel) for kernel in kernels]
    found = []
    for kernel in kernels:
        known = timings.get((task.seed, schedule_key(kernel.schedule)))
        if known is None:
            state.count("left out", "kernels without a timing")
        elif not known["correct"]:
            state.count("wrong", f"{task.task.name} {dict(kernel.schedule)}")
        else:
            times = {"microseconds": known["microseconds"], "eager_microseconds": known["eager_microseconds"]}
            found.append(Scored(kernel=kernel, **times))
    return found


def _judge(order: Order, config: Config, stack: ExitStack, say: Callable[[str], None]) -> Judge | None:
    device = "cuda" if order.backend == "cuda" else "cpu"
    if "repair" not in order.kinds and not order.judge_share:
        return None
    if config.judge.device != device:
        say(f"no repair samples: they need the judge on {device}, judge.device is {config.judge.device}")
        return None
    from judge.api import Judge

    return stack.enter_context(Judge(config.judge))


def _maker(order: Order, config: Config, judge: Judge | None) -> Maker:
    from cluster.generated_cpp import machine

    kinds = tuple(kind for kind in order.kinds if kind != "repair" or judge is not None)
    chat, answer = token_counters(config)
    return Maker(
        search=config.search,
        kinds=kinds,
        per_task=order.per_task,
        hardware=machine(config.judge) if order.backend == "cpp" else {"gpu": "NVIDIA H200"},
        count_tokens=chat,
        count_answer=answer,
        most_tokens=order.most_tokens,
        judge=judge.judge if judge else None,
    )


def token_counters(config: Config) -> tuple[Callable[[str], int], Callable[[str], int]]:
    """How long a prompt and an answer are for the configured policy."""
    from transformers import AutoTokenizer

    from learner.pretrained import SMOLLM2, TINY, prepare_model

    name = config.model.path
    tokenizer = AutoTokenizer.from_pretrained(str(prepare_model(TINY if name == SMOLLM2 else name)))

    def chat(text: str) -> int:
        turn = [{"role": "user", "content": text}]
        return len(tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=True)["input_ids"])

    def answer(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False)) + 1

    return chat, answer


def _compare(
    task: GeneratedTask,
    scored: Sequence[Scored],
    order: Order,
    judge: Judge | None,
    state: _State,
    say: Callable[[str], None],
) -> None:
    """Judge some of the kernels, and report where the two disagree."""
    rng = random.Random(f"judge {task.seed}")
    for one in scored:
        if judge is None or rng.random() >= order.judge_share:
            continue
        from judge.types import Candidate

        verdict = judge.judge(task.task, Candidate(code=one.kernel.code))
        state.count("judge", f"kernels judged {verdict.status.value}")
        if verdict.speedup and one.speedup:
            state.ratios.append(verdict.speedup / one.speedup)
        if not verdict.is_correct:
            say(f"disagreement: {task.task.name} {dict(one.kernel.schedule)}: {verdict.status}: {verdict.message}")


def _append(path: Path, lines: Sequence[Mapping[str, Any]], state: _State) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    state.size += len(text.encode())
    for line in lines:
        state.count("family", line["family"])
        state.count("kind", line["kind"])
        state.tokens.append(line["tokens"])


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {one.get(key)}" for key in other if one.get(key) != other[key])
