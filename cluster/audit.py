"""`warpsmith audit`: judges a collection entry by entry; what was measured is on disk before the next one begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from cluster.interrupts import sigterm_as_interrupt
from cluster.listings import visible
from judge.audit_summary import AuditResult, AuditSummary, Spread

if TYPE_CHECKING:
    from rich.console import Console

    from judge.api import Judge
    from judge.collection import Entry
    from judge.settings import JudgeSettings

MAX_ROWS = 500
"""Of the printed table; the results file has them all."""
MAX_REASONS = 12


def audit_entries(
    entries: Sequence[Entry], settings: JudgeSettings, path: Path, say: Callable[[str], None]
) -> list[AuditResult]:
    """Judge what ``path`` has no result of yet, appending one JSON line for each; results in the entries' order.

    After Ctrl-C or SIGTERM (KeyboardInterrupt) the file holds all that was judged, and the same call goes on there.
    Entries that ended with a judge_error are tried again. Raises ConfigError when the file is of something else.
    """
    settings_id = _settings_id(settings)
    known = _read_results(path, settings_id)
    waiting = [entry for entry in entries if entry.entry_id not in known]
    if len(waiting) < len(entries):
        say(f"{len(entries) - len(waiting)} of {len(entries)} are in {path} already")
    if waiting:
        with sigterm_as_interrupt(), path.open("a", encoding="utf-8") as file:
            first = len(entries) - len(waiting) + 1
            for number, result in enumerate(_judge_all(waiting, settings, settings_id), start=first):
                file.write(result.model_dump_json() + "\n")
                file.flush()
                known[result.entry_id] = result
                say(f"{number}/{len(entries)} {line_of(result)}")
    return [known[entry.entry_id] for entry in entries]


def _judge_all(entries: Sequence[Entry], settings: JudgeSettings, settings_id: str) -> Iterator[AuditResult]:
    from judge.api import Judge

    # A judge of a GPU keeps what it made of a task: entries of one task follow each other in all known collections.
    with Judge(settings) as judge:
        for entry in entries:
            yield _judge_one(judge, entry, settings_id)


def _judge_one(judge: Judge, entry: Entry, settings_id: str) -> AuditResult:
    from tasks.errors import TaskError

    verdict, reason = None, entry.reason
    if entry.task is not None and entry.candidate is not None:
        try:
            verdict, reason = judge.judge(entry.task, entry.candidate), ""
        except TaskError as error:
            reason = f"its reference cannot be used: {error}"
    return AuditResult(
        entry_id=entry.entry_id,
        name=entry.name,
        task_name=entry.task.name if entry.task else "",
        candidate_id=entry.candidate.candidate_id if entry.candidate else "",
        published=dict(entry.published),
        published_correct=entry.published_correct,
        verdict=verdict,
        reason=reason,
        settings_id=settings_id,
    )


def _settings_id(settings: JudgeSettings) -> str:
    return hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:12]


def _read_results(path: Path, settings_id: str) -> dict[str, AuditResult]:
    """Results by entry_id; a last line that was cut off by a crash is taken off the file."""
    from pydantic import ValidationError

    from judge.types import Status

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with path.open("r+b") as file:
                file.truncate(len(whole))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be used for results: {error.strerror}") from None
    known: dict[str, AuditResult] = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            result = AuditResult.model_validate_json(line)
        except ValidationError:
            raise ConfigError(f"{path}:{number}: no result of an audit; name another file with --out") from None
        if result.settings_id != settings_id:
            raise ConfigError(f"{path}: its results were made with other judge settings; name another file with --out")
        if result.verdict is None or result.verdict.status is not Status.JUDGE_ERROR:
            known[result.entry_id] = result
    return known


def line_of(result: AuditResult) -> str:
    """A result in one line."""
    note = result.verdict.message if result.verdict else result.reason
    return visible(f"{result.name}: {result.outcome}  {note[:160]}".rstrip())


def print_audit(console: Console, results: Sequence[AuditResult], summary: AuditSummary) -> None:
    """The table of entries, then the summary: published and measured side by side."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("entry")
    table.add_column("verdict")
    for column in ("published", "measured", "99% interval"):
        table.add_column(column, justify="right")
    table.add_column("against")
    for result in results[:MAX_ROWS]:
        verdict = result.verdict
        measured = verdict is not None and verdict.speedup is not None
        table.add_row(
            escape(visible(result.name)),
            result.outcome,
            _times(result.published_speedup),
            _times(verdict.speedup) if verdict and measured else "",
            f"{verdict.speedup_low or 0:.2f} to {verdict.speedup_high or 0:.2f}" if verdict and measured else "",
            (verdict.best_baseline or "") if verdict else "",
        )
    console.print(table)
    if len(results) > MAX_ROWS:
        console.print(f"... and {len(results) - MAX_ROWS} more")
    counts = ", ".join(f"{count} {name}" for name, count in summary.outcomes.items())
    console.print(f"{summary.entries} entries, {summary.judged} judged: {counts}", markup=False)
    comparison = Table(box=box.SIMPLE_HEAD)
    for column in ("speedup", "entries", "geomean", "median", "mean"):
        comparison.add_column(column, justify="left" if column == "speedup" else "right")
    comparison.add_row("measured, of the correct", *_spread(summary.measured))
    if summary.published.count:
        comparison.add_row("published, of the same", *_spread(summary.published_of_correct))
        comparison.add_row("published, of all judged", *_spread(summary.published))
    console.print(comparison)
    fast = Table(box=box.SIMPLE_HEAD)
    for column in ("fast_p", *summary.fast):
        fast.add_column(column, justify="left" if column == "fast_p" else "right")
    if summary.published.count:
        fast.add_row("published", *(f"{share:.0%}" for share in summary.fast_published.values()))
    fast.add_row("measured", *(f"{share:.0%}" for share in summary.fast.values()))
    fast.add_row("proved (lower end)", *(f"{share:.0%}" for share in summary.fast_proved.values()))
    console.print(fast)
    if summary.claims_that_failed:
        console.print(f"{summary.claims_that_failed} published as faster were not even correct here")
    for status, counted in summary.reasons.items():
        for reason, count in list(counted.items())[:MAX_REASONS]:
            console.print(visible(f"  {status} {count}x: {reason}"), markup=False, soft_wrap=True)
        if len(counted) > MAX_REASONS:
            console.print(f"  {status}: {len(counted) - MAX_REASONS} more reasons")


def summary_json(summary: AuditSummary, path: Path) -> str:
    """One JSON object: the summary, and where the results are."""
    return json.dumps({**summary.model_dump(mode="json"), "results": str(path)}, ensure_ascii=False)


def _times(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"


def _spread(spread: Spread) -> tuple[str, ...]:
    return (str(spread.count), *map(_times, (spread.geomean, spread.median, spread.mean)))
