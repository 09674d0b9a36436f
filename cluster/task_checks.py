"""`warpsmith tasks check`: is each task fit to be judged, and are its expert kernels right?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from cluster.judging import describe
from cluster.listings import visible

if TYPE_CHECKING:
    from rich.console import Console

    from judge.admission import Admission
    from judge.settings import JudgeSettings
    from tasks.types import Task


def check_tasks(tasks: Sequence[Task], settings: JudgeSettings, out: TextIO, *, as_json: bool) -> int:
    """Check them, print a table and one line a fault (or one JSON object), return the exit code.

    0: all are fit; 1: one has a fault, or an expert kernel that is not correct; 2: the judge itself failed.
    """
    from rich.console import Console

    from judge.api import Judge

    progress = Console(stderr=True, highlight=False)
    rows: list[dict[str, Any]] = []
    with Judge(settings) as judge:
        for number, task in enumerate(tasks, start=1):
            progress.print(f"{number}/{len(tasks)} {task.name}", markup=False)
            rows.append(_check(judge, task))
    if as_json:
        out.write(json.dumps({"tasks": rows}, ensure_ascii=False) + "\n")
    else:
        _print(Console(file=out, highlight=False), rows)
    if any(row["judge_failed"] for row in rows):
        return 2
    return 1 if any(row["faults"] for row in rows) else 0


def _check(judge: Any, task: Task) -> dict[str, Any]:
    from judge.admission import admit
    from judge.types import Candidate, Status
    from tasks.experts import expert_kernels
    from tasks.loader import suite_tasks

    admission: Admission = admit(judge, task)
    faults = [{"kind": fault.kind, "reason": fault.reason} for fault in admission.faults]
    checks = [
        {"name": check.name, "wanted": check.wanted, "ok": check.ok, "verdict": check.verdict.model_dump(mode="json")}
        for check in admission.checks
    ]
    failed = admission.judge_failed
    # On a GPU the suite's kernels of the other kind are theirs to check.
    known = {one.task_id for one in suite_tasks()} if judge.settings.device == "cpu" else set()
    for kernel in expert_kernels(task.name) if task.task_id in known and admission.admitted else ():
        verdict = judge.judge(task, Candidate(code=kernel.code))
        failed |= verdict.status is Status.JUDGE_ERROR
        checks.append(
            {
                "name": f"expert {kernel.quality}",
                "wanted": "correct",
                "ok": verdict.is_correct,
                "verdict": verdict.model_dump(mode="json"),
            }
        )
        if not verdict.is_correct:
            faults.append({"kind": "expert fails", "reason": f"{kernel.quality}: {describe(verdict)}"})
    return {"task": task.name, "where": task.where, "faults": faults, "checks": checks, "judge_failed": failed}


def _print(console: Console, rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("task", "checks", "reference", "experts", "admitted"):
        table.add_column(column)
    for row in rows:
        by_name = {check["name"]: check["verdict"] for check in row["checks"]}
        experts = ", ".join(
            f"{name.removeprefix('expert ')} {_short(verdict)}"
            for name, verdict in by_name.items()
            if name.startswith("expert ")
        )
        reference = _short(by_name["reference"]) if "reference" in by_name else ""
        passed = "no answer" if row["judge_failed"] else "no" if row["faults"] else "yes"
        table.add_row(row["task"], str(len(row["checks"])), reference, experts, passed)
    console.print(table)
    for row in rows:
        for fault in row["faults"]:
            console.print(visible(f"{row['task']}: {fault['kind']}: {fault['reason']}"), markup=False, soft_wrap=True)


def _short(verdict: dict[str, Any]) -> str:
    speedup = verdict["speedup"]
    return verdict["status"] if speedup is None else f"{verdict['status']} {speedup:.2f}x"
