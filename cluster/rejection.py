"""Rejection sampling for the supervised stage: several models answer every task, the judge says what is learned from.

The first stage of CUDA-L1 (arXiv 2507.14111, section 3.2): at most ``sft.attempts`` answers of each model to each task,
of which at most ``sft.kept`` distinct correct ones are kept. Models are asked in waves, so that none goes on after it
has succeeded. An answer is in answers.jsonl when it arrives, calls are counted in calls.jsonl, records go into the
archive under the model's name: a run that is killed asks for nothing twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from actors.endpoint import UNPAID, EndpointModel
from actors.models import POLICY, Models
from actors.settings import EndpointSettings
from actors.spending import Price, Spending
from cluster.corpus import epoch_batches
from cluster.errors import ConfigError
from cluster.judging import groups_of, judge_step, with_answers
from cluster.recording import Answer, Group
from cluster.run import Run, exemplar_pool
from judge.types import Status, Verdict
from learner.types import Sample
from search.fingerprint import fingerprint
from search.operators import build_prompt
from search.parser import parse
from search.types import Completion, Prompt
from tasks.types import Task

ANSWERS, CALLS = "answers.jsonl", "calls.jsonl"


@dataclass
class Attempts:
    """Of one model at one task."""

    task: Task
    model: str
    tried: int = 0
    kernels: set[str] = field(default_factory=set)
    """Fingerprints of what was correct."""
    unpaid: bool = False


def sample_by_rejection(run: Run) -> list[Group]:
    """Ask and judge until each model has succeeded or tried often enough at each task; one group a prompt.

    Raises ModelError where an endpoint refuses its key, name or request, ConfigError for an unusable folder.
    """
    settings, groups = run.config.sft, []
    names = [*(model.name for model in settings.models), *([POLICY] if settings.policy else [])]
    attempts = {(task.name, name): Attempts(task, name) for task in run.tasks for name in names}
    answers = _Answers(run.folder.path / ANSWERS)
    with _models(run) as models:
        wave = 0
        while asked := _wave(run, attempts.values()):
            wave += 1
            run.say(f"rejection sampling, wave {wave}: {sum(max(p.samples, 1) for _, p in asked)} answers")
            found = _judged(run, asked, _ask(run, models, answers, [prompt for _, prompt in asked]))
            run.record(*found)
            groups += found
            for group in found:
                _count(attempts[group.task_name, group.prompt.model], group)
    kept = sum(min(len(a.kernels), settings.kept) for a in attempts.values())
    run.say(f"rejection sampling: {kept} kernels kept of {sum(a.tried for a in attempts.values())} answers")
    return groups


def rejection_batches(run: Run, groups: Sequence[Group]) -> list[list[Sample]]:
    """The batches of all epochs over what is kept of recorded groups, each epoch in an order of its own.

    Kept are each model's and task's fastest distinct correct kernels that fit into learner.micro_batch_tokens; a kernel
    that two models wrote counts for the first of them.
    """
    settings = run.config.sft
    found: dict[tuple[str, str], list[tuple[Answer, Group]]] = {}
    for group in groups:
        for answer in group.answers:
            if answer.verdict.is_correct and answer.counts:
                found.setdefault((group.task_name, group.prompt.model), []).append((answer, group))
    room, samples, seen = run.config.learner.micro_batch_tokens, [], set[tuple[str, str]]()
    for (task_name, _), answers in found.items():
        kept = 0
        for answer, group in sorted(answers, key=lambda pair: -pair[0].verdict.score):
            candidate, completion = parse(answer.completion.text).candidate, answer.completion
            if candidate is None or kept == settings.kept:
                continue
            mark = (task_name, fingerprint(candidate.code))
            if mark in seen or len(completion.prompt_token_ids) + len(completion.token_ids) > room:
                continue
            seen.add(mark)
            kept += 1
            samples.append(
                Sample(
                    prompt_ids=completion.prompt_token_ids,
                    completion_ids=completion.token_ids,
                    policy_version=completion.policy_version,
                    group_id=group.prompt.prompt_id,
                )
            )
    return epoch_batches(run, samples, 6)


def _wave(run: Run, attempts: Iterable[Attempts]) -> list[tuple[Task, Prompt]]:
    """What is asked next: nothing of a model that has succeeded at a task, or has tried often enough, or is unpaid."""
    settings, asked = run.config.sft, []
    for one in attempts:
        left = min(settings.wave, settings.attempts - one.tried)
        if left <= 0 or len(one.kernels) >= settings.kept or one.unpaid:
            continue
        local = one.model == POLICY
        # The policy's answers to one prompt are sampled together; an endpoint gives one answer a prompt.
        for number in range(one.tried, one.tried + (1 if local else left)):
            prompt = _prompt(run, one, number)
            asked.append((one.task, replace(prompt, model=one.model, samples=left if local else 1)))
    return asked


def _prompt(run: Run, one: Attempts, number: int) -> Prompt:
    """Exemplars are experts' only: what a prompt shows must not depend on which answers came first."""
    experts = [record for record in exemplar_pool(run.archive, one.task, 1) if record.source == "expert"]
    name = f"j{number:02d}-{one.task.name}-{one.model}"
    seed = int.from_bytes(name.encode(), "big")
    return build_prompt(
        one.task,
        experts,
        run.config.search,
        np.random.default_rng([run.config.run.seed, 8, seed]),
        prompt_id=name,
        count_tokens=run.session.count_tokens,
    )


@contextmanager
def _models(run: Run) -> Iterator[Models | None]:
    """The endpoints and the policy; None where a recording answers."""
    if not run.session.live:
        yield None
        return
    settings = run.config.sft
    spending = Spending(settings.budget_usd, run.folder.path / CALLS)
    endpoints = [
        EndpointModel(
            EndpointSettings(**model.model_dump(include=set(EndpointSettings.model_fields))),
            api_key=os.environ.get(model.api_key_env, "").strip(),
            price=Price(prompt=model.prompt_usd, completion=model.completion_usd),
            spending=spending,
        )
        for model in settings.models
    ]
    models = Models(endpoints, run.session.the_rollout if settings.policy else None)
    try:
        for endpoint in endpoints:
            endpoint.check()
        yield models
    finally:
        models.close()


def _ask(run: Run, models: Models | None, answers: _Answers, prompts: Sequence[Prompt]) -> list[Completion]:
    """Completions in the prompts' order, with the tokens that the policy would learn from."""
    if models is None:
        return list(run.session.the_rollout.generate(prompts))
    new = [prompt for prompt in prompts if len(answers.known.get(prompt.prompt_id, ())) < max(prompt.samples, 1)]
    texts = {prompt.prompt_id: prompt for prompt in new}
    for completion in models.stream(new):
        answers.add(_with_tokens(run, texts[completion.prompt_id], completion))
    for completion in (one for prompt in new for one in answers.known[prompt.prompt_id] if one.reason):
        run.say(f"warning: {completion.model}: {completion.reason}")
    return [completion for prompt in prompts for completion in answers.known[prompt.prompt_id]]


def _with_tokens(run: Run, prompt: Prompt, completion: Completion) -> Completion:
    if completion.token_ids or not completion.text:
        return completion
    return replace(
        completion,
        prompt_token_ids=run.session.chat_ids(prompt.messages),
        token_ids=run.session.answer_ids(completion.text),
    )


def _judged(run: Run, asked: Sequence[tuple[Task, Prompt]], completions: Sequence[Completion]) -> list[Group]:
    """A group for each prompt. An answer that never came is a judge_error: it says nothing of its model."""
    works = with_answers(asked, completions, step=0)
    came = [work for work in works if work.completion.text]
    groups = groups_of(run, "sft", came, judge_step(run, came))
    for work in works:
        if not work.completion.text:
            verdict = Verdict(status=Status.JUDGE_ERROR, message=work.completion.reason)
            groups.append(
                Group(
                    run_id=run.state.run_id,
                    stage="sft",
                    step=0,
                    task_name=work.task.name,
                    task_id=work.task.task_id,
                    prompt=work.prompt,
                    answers=(Answer(completion=work.completion, record_id="", verdict=verdict),),
                )
            )
    return groups


def _count(attempts: Attempts, group: Group) -> None:
    for answer in group.answers:
        if answer.completion.finish_reason == UNPAID:
            attempts.unpaid = True
            continue
        attempts.tried += 1
        candidate = parse(answer.completion.text).candidate
        if answer.verdict.is_correct and candidate is not None:
            attempts.kernels.add(fingerprint(candidate.code))


class _Answers:
    """answers.jsonl: what models wrote, from the moment it arrives."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the file cannot be read; a last line that a kill has cut is passed over."""
        self.known: dict[str, list[Completion]] = {}
        self._path = path
        try:
            text = path.read_text("utf-8") if path.exists() else ""
            for line in text.split("\n"):
                try:
                    fields = json.loads(line)
                except ValueError:
                    continue
                found: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
                self._take(Completion(**found))
            if text and not text.endswith("\n"):
                self._append("\n")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (TypeError, KeyError):
            raise ConfigError(f"{path}: holds a line that is no answer; move the file away") from None

    def add(self, completion: Completion) -> None:
        """Raises ConfigError when the disk is full. What the budget did not admit is not kept: it was not asked."""
        self._take(completion)
        if completion.finish_reason != UNPAID:
            self._append(json.dumps(asdict(completion)) + "\n")

    def _take(self, completion: Completion) -> None:
        """One that is there already is replaced: a group that a kill has cut is sampled again as a whole."""
        others = [one for one in self.known.get(completion.prompt_id, []) if one.index != completion.index]
        self.known[completion.prompt_id] = sorted([*others, completion], key=lambda one: one.index)

    def _append(self, text: str) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from None
