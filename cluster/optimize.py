"""`warpsmith optimize`: evolution on one task or a folder of tasks, told to a terminal or a log.

Each search has a folder, runs/optimize/<task>-<run id>, that holds run.json, answers.jsonl (what models wrote, from the
moment it arrives), calls.jsonl (what they cost) and report.html; records are in the archive that all searches share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.commands_data import write_text
from cluster.config import Config
from cluster.errors import ConfigError
from cluster.interrupts import sigterm_as_interrupt
from tasks.types import Task

if TYPE_CHECKING:
    from actors.models import Models
    from actors.pools import EvaluatorPool
    from actors.spending import Price, Spending
    from archive.store import Archive
    from archive.types import Record
    from cluster.optimize_view import View
    from search.templates import Templates
    from serving.optimizer import OptimizeResult

Say = Callable[[str], None]
NO_MODEL, LOCAL, OPENAI = "none", "local", "openai:"
"""What --model may say, besides a Hugging Face folder for the local policy."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command line asks for."""

    models: tuple[str, ...] = (LOCAL,)
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    prices: tuple[str, ...] = ()
    """ "IN/OUT" for every endpoint model, or "NAME=IN/OUT": USD for a million tokens."""
    max_candidates: int = 32
    """Of each task."""
    budget_usd: float | None = None
    """Of all tasks together."""
    budget_seconds: float | None = None
    """Of all tasks together, from when the models are ready."""
    resume: bool = False
    out: Path | None = None
    """File of the best kernel; a folder when there are several tasks."""
    archive_url: str | None = None

    @property
    def endpoints(self) -> list[str]:
        return [name.removeprefix(OPENAI) for name in self.models if name.startswith(OPENAI)]

    @property
    def local(self) -> str | None:
        """ "local", or a model's folder; None without a local policy."""
        return next((name for name in self.models if name != NO_MODEL and not name.startswith(OPENAI)), None)


def optimize_command(tasks: Sequence[Task], config: Config, order: Order) -> int:
    """Search, and write the best verified kernels; returns 0 when there is one for any task, 1 when none was faster.

    Everything that was answered and judged is kept, after Ctrl-C (KeyboardInterrupt) too: then the report is written
    before the exception goes on.

    Raises TaskError, ConfigError, LearnerError, ActorError in one line each.
    """
    from actors.spending import Spending
    from archive.store import Archive
    from cluster.optimize_view import open_view
    from cluster.serve import optimizer_archive

    _check(order, tasks)
    url = order.archive_url or optimizer_archive(config)
    root = Path(config.run.folder).absolute() / "optimize"
    won = 0
    with sigterm_as_interrupt(), ExitStack() as stack:
        archive = Archive(url)
        stack.callback(archive.close)
        view = stack.enter_context(open_view(order))
        view.say(f"archive {url.removeprefix('sqlite:///')}")
        places = [_place(root, task, order, view.say) for task in tasks]
        # One budget for all of them: its ledger lies with the first.
        spending = view.spending = Spending(order.budget_usd, places[0] / "calls.jsonl")
        models, evaluators = stack.enter_context(_open_models(config, order, spending, view.say))
        began = time.monotonic()
        for task, place in zip(tasks, places, strict=True):
            left = None if order.budget_seconds is None else order.budget_seconds - (time.monotonic() - began)
            result = _search(
                task, place, config, replace(order, budget_seconds=left), archive, models, evaluators, view
            )
            won += _report(result, _out(order, task, len(tasks)), url, view.say) == 0
            view.say(f"report: {place / 'report.html'}")
    return 0 if won else 1


def _search(
    task: Task,
    place: Path,
    config: Config,
    order: Order,
    archive: Archive,
    models: Models,
    evaluators: EvaluatorPool,
    view: View,
) -> OptimizeResult:
    from cluster.optimize_report import write_search_report
    from serving.answers import AnswerLog
    from serving.evolution import evolve_task
    from serving.optimizer import Workbench

    run_id = str(json.loads((place / "run.json").read_text())["run_id"])
    earlier = archive.count(task_id=task.task_id)
    view.start(task.name, models)
    if earlier:
        view.say(f"{earlier} records of this task are there already")
    bench = Workbench(
        rollout=models,
        evaluators=evaluators,
        archive=archive,
        search=config.search,
        prompts_per_round=config.rollout.actors,
        seed=config.run.seed,
    )
    result = None
    try:
        result = evolve_task(
            task,
            bench,
            config.evolution,
            models,
            max_candidates=order.max_candidates,
            budget_seconds=order.budget_seconds,
            spending=view.spending,
            answers=AnswerLog(place / "answers.jsonl"),
            templates=_templates(task, config, view.say),
            run_id=run_id,
            on_record=view.on_record,
        )
        return result
    finally:
        write_search_report(place / "report.html", task, archive, view.spending, result, run_id=run_id)


def _templates(task: Task, config: Config, say: Say) -> Templates | None:
    """What can be made of the task's operations without a model; None, and a line that says why, where nothing can."""
    if not config.evolution.templates or "cpp" not in task.backends or config.judge.device != "cpu":
        return None
    from judge.errors import JudgeError
    from judge.task_trace import trace_task
    from search.errors import SearchError
    from search.templates import make_templates
    from tasks.errors import TaskError

    try:
        found = make_templates(task, trace_task(task, config.judge))
    except (SearchError, TaskError, JudgeError) as error:  # the search goes on without; a broken task is told later
        say(str(error))
        return None
    stays = f", {found.library_calls} operations stay PyTorch's" if found.library_calls else ""
    say(f"templates: {found.kernels} fused kernels{stays}")
    return found


@contextmanager
def _open_models(config: Config, order: Order, spending: Spending, say: Say) -> Iterator[tuple[Models, EvaluatorPool]]:
    """Endpoints are asked first whether they take the key: a wrong one costs no start of Ray."""
    from actors.endpoint import EndpointModel, EndpointSettings
    from actors.models import Models
    from actors.pools import EvaluatorPool, RolloutPool
    from cluster.session import ray_cluster

    def warn(line: str) -> None:
        say(f"warning: {line}")

    with ExitStack() as stack:
        endpoints = []
        for name in order.endpoints:
            settings = EndpointSettings(name=name, base_url=order.base_url, call_seconds=config.timeouts.rollout)
            endpoint = EndpointModel(
                settings,
                api_key=os.environ.get(order.api_key_env, "").strip(),
                price=_price(name, order.prices),
                spending=spending,
            )
            stack.callback(endpoint.close)
            endpoint.check()
            endpoints.append(endpoint)
            say(f"model {name} at {order.base_url}")
        model_dir = None
        if order.local is not None:
            from learner.pretrained import prepare_model

            path = config.model.path if order.local == LOCAL else order.local
            say(f"model {path}")
            model_dir = prepare_model(path)
        stack.enter_context(ray_cluster(config))
        evaluators = EvaluatorPool(config.judge, config.evaluators, config.timeouts, on_event=warn)
        stack.callback(evaluators.close)
        policy = None
        if model_dir is not None:
            policy = RolloutPool(model_dir, config.rollout, config.timeouts, seed=config.run.seed, on_event=warn)
            stack.callback(policy.close)
        yield Models(endpoints, policy), evaluators


def _check(order: Order, tasks: Sequence[Task]) -> None:
    """What can be said before anything starts. Raises ConfigError."""
    names = [name for name in order.models if name != NO_MODEL]
    if len(names) != len(set(names)):
        raise ConfigError("--model: a model is named twice")
    if len([name for name in names if not name.startswith(OPENAI)]) > 1:
        raise ConfigError(f"--model {' --model '.join(names)}: only one local model at a time")
    if "" in order.endpoints:
        raise ConfigError(f"--model {OPENAI}: name the model, such as {OPENAI}my-model")
    for name in order.endpoints:
        price = _price(name, order.prices)
        if order.budget_usd is not None and price.prompt == 0 and price.completion == 0:
            raise ConfigError(
                f"--budget-usd needs to know what {name} costs: add --price {name}=IN/OUT (USD a million)"
            )
    if len(tasks) > 1 and order.out is not None and order.out.suffix == ".py":
        raise ConfigError(f"--out {order.out}: there are {len(tasks)} tasks; give a folder")


def _price(name: str, prices: Sequence[str]) -> Price:
    from actors.spending import Price

    found = Price()
    for text in prices:
        who, _, amount = text.rpartition("=")
        asked, _, written = amount.partition("/")
        try:
            price = Price(prompt=float(asked), completion=float(written))
        except ValueError:
            raise ConfigError(
                f"--price {text}: write [NAME=]IN/OUT, USD for a million tokens, such as 2.5/10"
            ) from None
        if who in ("", name):
            found = price
    return found


def _place(root: Path, task: Task, order: Order, say: Say) -> Path:
    """The search's folder: a new one, or with --resume the newest of the same task."""
    from archive.types import new_id

    if order.resume:
        earlier = [
            path
            for path in root.glob(f"{task.name}-*/run.json")
            if json.loads(path.read_text()).get("task_id") == task.task_id
        ]
        if earlier:
            newest = max(earlier, key=lambda path: path.stat().st_mtime).parent
            say(f"resuming {newest.name}")
            return newest
        say(f"nothing of {task.name} to resume: starting anew")
    short = new_id()[:8]
    place = root / f"{task.name}-{short}"
    facts = {"run_id": f"optimize-{short}", "task_id": task.task_id, "task": task.name, "models": list(order.models)}
    write_text(place / "run.json", json.dumps(facts, indent=1) + "\n")
    return place


def _out(order: Order, task: Task, count: int) -> Path:
    name = f"{task.name}_fast.py"
    if order.out is None:
        return Path(name)
    return order.out / name if count > 1 or order.out.is_dir() else order.out


def _report(result: OptimizeResult, path: Path, url: str, say: Say = print) -> int:
    """Say what came of it, and write the kernel."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result.statuses.items())) or "nothing new"
    stopped = {
        "budget": "the budget is spent",
        "candidates": "done",
        "caller": "stopped",
        "models": "no model answers",
        "exhausted": "nothing left to try",
    }[result.stopped_by]
    say(f"{stopped} after {result.seconds:.0f} s: {result.asked} candidates asked for, {counts}")
    if result.best is None:
        say(f"no candidate was verified faster; {_best_correct(result.best_correct)}")
        return 1
    from archive.standalone import export_candidate

    verdict = result.best.verdict
    write_text(path, export_candidate(result.best, result.task))
    say(
        f"best: {verdict.speedup:.2f}x, 99% interval [{verdict.speedup_low:.2f}, {verdict.speedup_high:.2f}] against "
        f"{verdict.best_baseline}, confirmed on new process pairs; written by {result.best.source}"
    )
    say(f"kernel: {path} (record {result.best.record_id} of {url.removeprefix('sqlite:///')})")
    return 0


def _best_correct(record: Record | None) -> str:
    if record is None:
        return "none was correct"
    from cluster.judging import describe

    return f"best correct: {describe(record.verdict)} by {record.source}, record {record.record_id}"
