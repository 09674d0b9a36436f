"""The operators of evolution: each looks at the records of a task and says what to show and what to ask for.

An operator is a pure function (task, view, settings, generator) -> Draft, or None where it has nothing to work on, such
as a repair without a failure. `propose` puts a draft into the one skeleton and cuts it to size.

Sources: translate, repair, crossover and retrieve follow the stages of the AI CUDA Engineer (Lange et al., 2025); edit
is the search/replace diff of AlphaEvolve (Novikov et al., arXiv 2506.13131); contrast is CUDA-L1 (arXiv 2507.14111).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from archive.types import Record
from judge.types import Status
from search.backends import of_backend
from search.bandit import Arm, choose_arm, pulls_of
from search.behaviour import elites
from search.feedback import summarise
from search.lineage import made, repairable
from search.novelty import similarity
from search.operators import estimate_tokens, hardware_of
from search.prompts import PLAIN, Brief, render, shown_code
from search.samplers import distinct_correct, sample_exemplars, softmax
from search.settings import SearchSettings
from search.types import Prompt
from tasks.types import Task


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """The best kernel known for another task."""

    task: Task
    record: Record


@dataclass(frozen=True, kw_only=True)
class View:
    """What an operator may look at."""

    records: Sequence[Record]
    """All of the task, confirmations left out; in any order."""
    pool: Sequence[Record] | None = None
    """Those that may be parents, such as an island; all records when left out."""
    neighbours: Sequence[Neighbour] = ()
    """Kernels of other tasks; in any order."""

    @property
    def parents(self) -> list[Record]:
        """Distinct correct kernels that may be parents, the oldest first."""
        pool = distinct_correct(self.records if self.pool is None else self.pool)
        return pool or distinct_correct(self.records)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a prompt will show and ask for."""

    exemplars: tuple[Record, ...] = ()
    """In the order in which they are shown; when there is no room, the first goes first."""
    brief: Brief = PLAIN
    required: int = 0
    """So many exemplars, the last ones, must fit; otherwise there is no prompt."""


Operator = Callable[[Task, View, SearchSettings, np.random.Generator], Draft | None]

WHOLE_FILE = ("contrast", "translate", "repair", "crossover", "fuse")
"""Operators of training: their answers are whole files, and they need no kernels of other tasks."""

_FUNCTIONAL = (
    "Do not write a kernel yet: give ModelNew in plain PyTorch whose forward calls one function, module_fn, on its "
    "inputs and parameters, with torch and torch.nn.functional only."
)
_TRANSLATE = "First of all it must be right: translate the reference directly, then make the plain loops fast."
_REPAIR = "The implementation below failed. Find out why and give the whole file again, mended."
_EDIT = "Change the implementation below so that it becomes faster, by a few edits and not by writing it anew."
_CROSSOVER = "Combine what makes the implementations below fast into one that is faster than each of them."
_FUSE = (
    "Fuse: do as many of the operations as possible in one pass over memory, so that no intermediate result is written "
    "and read again."
)
_RETRIEVE = "The implementations below are for other, similar tasks: use what serves here, and compute what Model does."


def propose(
    operator: str,
    task: Task,
    view: View,
    settings: SearchSettings,
    rng: np.random.Generator,
    *,
    prompt_id: str,
    model: str = "policy",
    count_tokens: Callable[[str], int] | None = None,
) -> Prompt | None:
    """The operator's prompt, at most ``settings.max_prompt_tokens`` long; None when it has nothing to ask or no room.

    Args:
        operator: one of OPERATORS.
        rng: the same state and view give the same prompt.

    Raises SearchError for a task that does not admit settings.backend.
    """
    view = _within(view, settings.backend)
    draft = OPERATORS[operator](task, view, settings, rng)
    if draft is None:
        return None
    count = count_tokens or estimate_tokens
    hardware = hardware_of(view.records, settings)
    for drop in range(len(draft.exemplars) - draft.required + 1):
        shown = draft.exemplars[drop:]
        brief = replace(draft.brief, titles=draft.brief.titles[drop:])
        text = render(task, shown, hardware, brief, backend=settings.backend, short=settings.short_prompts)
        if count(text) <= settings.max_prompt_tokens:
            return Prompt(
                prompt_id=prompt_id,
                task_name=task.name,
                operator=operator,
                messages=({"role": "user", "content": text},),
                exemplar_ids=tuple(record.record_id for record in shown),
                edits=f"{shown_code(shown[-1])}\n" if brief.answer == "edit" else "",
                model=model,
            )
    return None


def evolve_prompt(
    task: Task,
    records: Sequence[Record],
    settings: SearchSettings,
    rng: np.random.Generator,
    *,
    prompt_id: str,
    count_tokens: Callable[[str], int] | None = None,
) -> Prompt | None:
    """The prompt of a training step: the operator is drawn by what the policy's answers to it have earned so far.

    None when none of WHOLE_FILE has anything to ask; as deterministic as the records and the generator.
    """
    ordered = sorted(records, key=made)
    pulls = pulls_of([record for record in ordered if record.source in ("policy", "expert")], {})
    arms = [Arm(operator, "policy") for operator in WHOLE_FILE]
    while arms:
        arm = choose_arm(arms, pulls, rng)
        prompt = propose(
            arm.operator, task, View(records=ordered), settings, rng, prompt_id=prompt_id, count_tokens=count_tokens
        )
        if prompt is not None:
            return prompt
        arms.remove(arm)
    return None


def _within(view: View, backend: str) -> View:
    """The view without what is written in another language."""
    return View(
        records=of_backend(view.records, backend),
        pool=None if view.pool is None else of_backend(view.pool, backend),
        neighbours=[n for n in view.neighbours if of_backend([n.record], backend)],
    )


def _vanilla(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    return Draft()


def _contrast(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    exemplars = sample_exemplars(view.parents, settings, rng)
    return Draft(exemplars=tuple(exemplars), required=1) if exemplars else None


def _functional(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    """Only once: its answer serves every translation after it."""
    done = any(record.operator == "functional" and record.verdict.is_correct for record in view.records)
    return None if done else Draft(brief=Brief(goal=_FUNCTIONAL))


def _translate(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    forms = [record for record in view.records if record.operator == "functional" and record.verdict.is_correct]
    title = ("Functional form, in PyTorch: right, and what to translate",)
    return Draft(exemplars=tuple(forms[:1]), brief=Brief(goal=_TRANSLATE, titles=title[: len(forms)]))


def _repair(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    """The last failure that is still worth a try."""
    failures = repairable(view.records, settings.max_repairs)
    if not failures:
        return None
    failed = failures[-1]
    brief = Brief(goal=_REPAIR, titles=("Failed implementation",), feedback=summarise(failed.verdict))
    return Draft(exemplars=(failed,), brief=brief, required=1)


def _edit(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    parent = _drawn(view, settings, rng)
    if parent is None:
        return None
    return Draft(exemplars=(parent,), brief=_about(parent, _EDIT, answer="edit"), required=1)


def _crossover(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    """The best of different kinds, then the best of all, from slow to fast."""
    parents = view.parents
    fastest = sorted(parents, key=lambda record: (record.score, record.record_id), reverse=True)
    kinds = sorted(elites(parents).values(), key=lambda record: (record.score, record.record_id), reverse=True)
    chosen = list({record.record_id: record for record in [*kinds, *fastest]}.values())[: settings.crossover_parents]
    if len(chosen) < 2:
        return None
    chosen.sort(key=lambda record: (record.score, record.record_id))
    return Draft(exemplars=tuple(chosen), brief=replace(_about(chosen[-1], _CROSSOVER), titles=()), required=2)


def _fuse(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    parent = _drawn(view, settings, rng)
    if parent is None:
        return Draft(brief=Brief(goal=_FUSE))
    return Draft(exemplars=(parent,), brief=_about(parent, _FUSE), required=1)


def _retrieve(task: Task, view: View, settings: SearchSettings, rng: np.random.Generator) -> Draft | None:
    near = similar(task, view.neighbours)[: settings.exemplars or 1]
    if not near:
        return None
    near.reverse()  # the most similar one last
    titles = tuple(f"For the task {n.task.name}: speedup {n.record.score:.2f}x" for n in near)
    return Draft(exemplars=tuple(n.record for n in near), brief=Brief(goal=_RETRIEVE, titles=titles), required=1)


def similar(task: Task, neighbours: Sequence[Neighbour]) -> list[Neighbour]:
    """Kernels of other tasks, those of the most similar reference code first; of one task the fastest only."""
    best: dict[str, Neighbour] = {}
    for one in neighbours:
        known = best.get(one.task.task_id)
        if one.task.task_id != task.task_id and (known is None or one.record.score > known.record.score):
            best[one.task.task_id] = one
    return sorted(best.values(), key=lambda one: (-similarity(task.source, one.task.source), one.task.name))


def _drawn(view: View, settings: SearchSettings, rng: np.random.Generator) -> Record | None:
    """A parent by softmax of its score; one with a kernel of its own where there is any."""
    parents = [record for record in view.parents if record.operator != "functional"]
    if not parents:
        return None
    weights = softmax([record.score for record in parents], settings.bucket_temperature)
    return parents[int(rng.choice(len(parents), p=weights))]


def _about(record: Record, goal: str, answer: str = "file") -> Brief:
    """A brief about one kernel, with what the judge measured of it."""
    what = "right and faster" if record.verdict.status is Status.WIN else "right"
    title = f"Speedup {record.score:.2f}x ({what})"
    return Brief(
        goal=goal,
        titles=(title,),
        feedback=f"Of the last implementation above:\n{summarise(record.verdict)}",
        answer="edit" if answer == "edit" else "file",
    )


OPERATORS: dict[str, Operator] = {
    "vanilla": _vanilla,
    "contrast": _contrast,
    "functional": _functional,
    "translate": _translate,
    "repair": _repair,
    "edit": _edit,
    "crossover": _crossover,
    "fuse": _fuse,
    "retrieve": _retrieve,
}
"""Those that ask a model; `sweep` (search/sweep.py) and `transplant` make candidates without one."""
