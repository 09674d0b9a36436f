"""The one-page report of a search: HTML that opens from disk, runs no script and needs no network.

All of it is made from the archive and the ledger of calls, so an interrupted search has one too. Code and messages are
written by models: everything is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archive.types import Record
from cluster.errors import ConfigError
from cluster.judging import status_name
from search.bandit import summarise_arms
from search.behaviour import elites
from search.lineage import ancestors
from tasks.types import Task

if TYPE_CHECKING:
    from actors.spending import Spending
    from archive.store import Archive
    from serving.optimizer import OptimizeResult

CHART_WIDTH, CHART_HEIGHT, MARGIN = 720, 200, 34


def write_search_report(
    path: Path, task: Task, archive: Archive, spending: Spending | None, result: OptimizeResult | None, *, run_id: str
) -> None:
    """Write the page; `result` is None after an interruption. Raises ConfigError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = render_search(task, archive.records(task_id=task.task_id), spending, result, run_id=run_id)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; free some space or mend its rights") from None


def render_search(
    task: Task, records: Sequence[Record], spending: Spending | None, result: OptimizeResult | None, *, run_id: str
) -> str:
    """The page as text.

    Args:
        records: of the task, in order of arrival; those of earlier searches and confirmations included.
    """
    import jinja2
    from markupsafe import Markup
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    from serving.evolution import pulls_of
    from serving.optimizer import CONFIRM

    asked = [record for record in records if record.operator != CONFIRM]
    best = result.best if result is not None else None
    correct = [record for record in asked if record.verdict.is_correct]
    shown = best or max(correct, key=lambda record: record.score, default=None)
    formatter = HtmlFormatter(style="friendly", nobackground=True)
    statuses = sorted({status_name(record) for record in asked})
    by_source: dict[str, Counter[str]] = {}
    for record in asked:
        by_source.setdefault(record.source, Counter())[status_name(record)] += 1
    calls = spending.calls if spending is not None else ()
    pulls = pulls_of(asked, spending) if spending is not None else []
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string((resources.files("cluster") / "optimize_report.html").read_text("utf-8"))
    return template.render(
        task=task,
        best=best,
        shown=shown,
        state=_state(result, run_id, len(asked)),
        chart=Markup(progress_chart([record.score for record in asked])),
        statuses=statuses,
        by_source=sorted(by_source.items()),
        arms=summarise_arms(pulls),
        unit="USD" if any(call.usd for call in calls) else "seconds",
        calls=_calls(calls),
        cells=sorted(elites(asked).items(), key=lambda item: -item[1].score),
        code=Markup(highlight(shown.code, PythonLexer(), formatter)) if shown else "",
        highlight_css=Markup(formatter.get_style_defs(".highlight")),
        line=_line(shown, records) if shown else [],
        facts=_facts(shown) if shown else [],
    )


def progress_chart(scores: Sequence[float]) -> str:
    """SVG: a dot for each candidate that is correct, and the best so far as a line; log scale of the speedup."""
    import math

    best_so_far, best, points = [], 0.0, []
    for score in scores:
        best = max(best, score)
        best_so_far.append(best)
    values = [score for score in scores if score > 0]
    low, high = min([*values, 1.0]) * 0.95, max([*values, 1.0]) * 1.05
    width, height = CHART_WIDTH - 2 * MARGIN, CHART_HEIGHT - 2 * MARGIN

    def x(number: int) -> float:
        return MARGIN + width * number / max(len(scores) - 1, 1)

    def y(score: float) -> float:
        return MARGIN + height * (1 - math.log(score / low) / math.log(high / low))

    line = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in enumerate(best_so_far) if value > 0)
    points = [
        f'<circle cx="{x(n):.1f}" cy="{y(score):.1f}" r="2.5" fill="var(--soft)"/>'
        for n, score in enumerate(scores)
        if score > 0
    ]
    labels = "".join(
        f'<text x="4" y="{y(value) + 4:.1f}" font-size="11" fill="var(--soft)">{value:.2f}x</text>'
        for value in sorted({1.0, best or 1.0})
    )
    return (
        f'<svg viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" role="img" '
        f'aria-label="best speedup {best:.2f}x after {len(scores)} candidates">'
        f'<line x1="{MARGIN}" x2="{CHART_WIDTH - MARGIN}" y1="{y(1.0):.1f}" y2="{y(1.0):.1f}" stroke="var(--line)"/>'
        f'{"".join(points)}<polyline points="{line}" fill="none" stroke="var(--mark)" stroke-width="2"/>{labels}'
        f'<text x="{CHART_WIDTH - MARGIN}" y="{CHART_HEIGHT - 8}" font-size="11" text-anchor="end" '
        f'fill="var(--soft)">{len(scores)} candidates</text></svg>'
    )


def _state(result: OptimizeResult | None, run_id: str, count: int) -> str:
    if result is None:
        return f"Interrupted; {count} candidates are in the archive. Go on with --resume. Run {run_id}."
    return f"Ended after {result.seconds:.0f} s ({result.stopped_by}); {count} candidates. Run {run_id}."


def _calls(calls: Sequence[Any]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for call in calls:
        empty = {"model": call.model, "outcome": call.outcome, "count": 0, "usd": 0.0}
        row = rows.setdefault((call.model, call.outcome), empty | {"prompt_tokens": 0, "completion_tokens": 0})
        row["count"] += 1
        for name in ("usd", "prompt_tokens", "completion_tokens"):
            row[name] += getattr(call, name)
    return [rows[key] for key in sorted(rows)]


def _line(record: Record, records: Sequence[Record]) -> list[Record]:
    """Its ancestors, the oldest first, and itself."""
    by_id = {one.record_id: one for one in records}
    return [*reversed(ancestors(record, by_id)), record]


def _facts(record: Record) -> list[tuple[str, str]]:
    verdict = record.verdict
    times = {"candidate": verdict.candidate_ms, **verdict.baselines.model_dump()}
    error = "" if verdict.max_error is None else f"{verdict.max_error:.3g}, {verdict.tolerance or 0:.3g} allowed"
    facts = {
        "status": str(verdict.status),
        "message": verdict.message,
        "median call": ", ".join(f"{name} {value:.4g} ms" for name, value in times.items() if value is not None),
        "largest error": error,
        "flags": ", ".join(verdict.flags),
        "isolation": ", ".join(verdict.sandbox),
        "hardware": ", ".join(f"{name}: {value}" for name, value in sorted(verdict.hardware.items())),
    }
    return [(label, text) for label, text in facts.items() if text]
