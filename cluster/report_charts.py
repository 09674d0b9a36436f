"""Which charts a report has, and the table that shows that the weights changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cluster.charts import Chart, Series, line_chart, stacked_bars
from cluster.report_data import RunData, best_record, is_copy, is_unparsed, number, numbers

STATUS_ORDER = (
    "win",
    "correct",
    "incorrect",
    "runtime_error",
    "timeout",
    "rejected",
    "compile_error",
    "unparsed",
    "judge_error",
)
"""From the best outcome to none; each is also the colour class of its bars. Others are drawn as "other"."""
PHASE_COLOURS = {"rollout": "p1", "judge": "p2", "learn": "p3", "sync": "p4", "save": "p5"}


def charts_of(data: RunData) -> dict[str, Chart | None]:
    """The report's charts by name; None for one that has nothing to draw."""
    return {
        "reward": _reward(data),
        "speedup": _speedup(data),
        "statuses": _statuses(data),
        "probe": _probe(data),
        "seconds": _seconds(data),
    }


def phases_of(data: RunData) -> list[str]:
    """The phases that the run has timed: those of a step in their order, then any other."""
    found = dict.fromkeys(phase for line in data.lines for phase in numbers(line.get("seconds")))
    return [
        *(phase for phase in PHASE_COLOURS if phase in found),
        *(phase for phase in found if phase not in PHASE_COLOURS),
    ]


def summary_of_updates(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What each update did to the weights: rows for the table and one sentence."""
    rows = []
    for line in lines:
        before, after = number(line.get("probe_logprob_before")), number(line.get("probe_logprob_after"))
        engine, learner = number(line.get("probe_engine_after")), numbers(line.get("learner"))
        rows.append(
            {
                "label": f"{line.get('stage', '?')} {line.get('step', '?')}",
                "version": line.get("policy_version", "–"),
                "before": before,
                "after": after,
                "change": after - before if before is not None and after is not None else None,
                "engine": engine,
                "difference": number(line.get("probe_difference")),
                "gap": engine - after if engine is not None and after is not None else None,
                "mismatch": learner.get("mismatch_mean"),
                "mismatch_max": learner.get("mismatch_max"),
                "loss": learner.get("loss"),
                "kl": learner.get("kl"),
                "grad_norm": learner.get("grad_norm"),
            }
        )
    return {"rows": rows, "sentence": _sentence(rows)}


def _sentence(rows: Sequence[dict[str, Any]]) -> str:
    measured = [row for row in rows if row["change"] is not None]
    if not measured:
        return "No update has been measured yet."
    changed = sum(row["change"] != 0 for row in measured)
    first, last = measured[0], measured[-1]
    gaps = [abs(row["gap"]) for row in measured if row["gap"] is not None]
    engine = f" The engine stayed within {max(gaps):.3f} of the learner." if gaps else ""
    return (
        f"{changed} of {len(measured)} updates changed what the policy says of the probe text: its mean logprob went "
        f"from {first['before']:.4f} to {last['after']:.4f}, and the policy is at version {last['version']}.{engine}"
    )


def _steps(data: RunData) -> list[tuple[int, dict[str, Any]]]:
    return [(line["step"], line) for line in data.lines_of("contrastive") if isinstance(line.get("step"), int)]


def _reward(data: RunData) -> Chart | None:
    means: list[tuple[float, float]] = []
    band: list[tuple[float, float, float]] = []
    for step, line in _steps(data):
        mean = number(line.get("reward_mean"))
        if mean is None:
            continue
        means.append((float(step), mean))
        groups = line.get("groups")
        spreads = [numbers(group) for group in groups.values()] if isinstance(groups, dict) else []
        lows, highs = [s["min"] for s in spreads if "min" in s], [s["max"] for s in spreads if "max" in s]
        if lows and highs:
            band.append((float(step), min(lows), max(highs)))
    return line_chart(
        "Reward of the policy's completions",
        [Series(name="mean", colour="p1", points=tuple(means), band=tuple(band))],
        x_label="contrastive step",
        y_label="raw reward",
        include_zero=True,
        note="The band runs from the worst to the best completion of the step. The raw reward is the speedup, "
        "or the configured partial credit.",
    )


def _speedup(data: RunData) -> Chart | None:
    """Geometric means over all tasks of the best win so far (1 where there is none), and the policy's dots."""
    last = max((step for step, _ in _steps(data)), default=0)
    dots = [
        (float(record.step), record.score)
        for record in data.records
        if record.source == "policy" and record.step and record.verdict.is_correct and not is_copy(record)
    ]
    steps = range(last + 1)
    series = [
        Series(name="best of all writers", colour="p2", points=_best_so_far(data, steps, anyone=True)),
        Series(name="best of the policy", colour="p1", points=_best_so_far(data, steps, anyone=False)),
        Series(name="correct candidate of the policy", colour="p3", points=tuple(sorted(dots)), dots_only=True),
    ]
    return line_chart(
        "Verified speedup",
        [one for one in series if one.points],
        x_label="contrastive step",
        y_label="speedup",
        rule=1.0,
        note="Lines: geometric mean over the tasks of the best win so far, 1 where there is none. "
        "Step 0 is what the archive held before.",
    )


def _best_so_far(data: RunData, steps: range, *, anyone: bool) -> tuple[tuple[float, float], ...]:
    task_ids = {record.task_id for record in data.records}
    wins: dict[int, list[Any]] = {}
    for record in data.records:
        if record.verdict.status == "win" and (anyone or record.source == "policy"):
            wins.setdefault(record.step or 0, []).append(record)
    best: dict[str, Any] = {}
    points = []
    for step in steps if task_ids else ():
        for record in wins.get(step, []):
            best[record.task_id] = best_record(one for one in (best.get(record.task_id), record) if one is not None)
        logs = [math.log(record.score) for record in best.values() if record is not None and record.score > 0]
        points.append((float(step), math.exp(sum(logs) / len(task_ids))))
    return tuple(points)


def _statuses(data: RunData) -> Chart | None:
    """From the metrics; for steps that have no line yet, from the archive."""
    counts: dict[int, dict[str, float]] = {}
    for record in data.records:
        if record.source == "policy" and record.step:
            name = "unparsed" if is_unparsed(record) else str(record.verdict.status)
            found = counts.setdefault(record.step, {})
            found[name] = found.get(name, 0.0) + 1
    for step, line in _steps(data):
        counts[step] = numbers(line.get("statuses")) or counts.get(step, {})
    steps = sorted(counts)
    names = [*STATUS_ORDER, *sorted({name for found in counts.values() for name in found} - set(STATUS_ORDER))]
    return stacked_bars(
        "What became of the completions",
        [str(step) for step in steps],
        {name: [max(counts[step].get(name, 0.0), 0.0) for step in steps] for name in names},
        {name: name.replace("_", "-") if name in STATUS_ORDER else "other" for name in names},
        x_label="contrastive step",
        y_label="completions",
    )


def _probe(data: RunData) -> Chart | None:
    learner: list[tuple[float, float]] = []
    engine: list[tuple[float, float]] = []
    for position, line in enumerate(data.lines, start=1):
        before, after = number(line.get("probe_logprob_before")), number(line.get("probe_logprob_after"))
        if not learner and before is not None:
            learner.append((float(position - 1), before))
        if after is not None:
            learner.append((float(position), after))
        if (told := number(line.get("probe_engine_after"))) is not None:
            engine.append((float(position), told))
    return line_chart(
        "Mean logprob of the probe text",
        [
            Series(name="learner (DeepSpeed)", colour="p1", points=tuple(learner)),
            Series(name="rollout engine (vLLM)", colour="p3", points=tuple(engine), dots_only=True),
        ],
        x_label="update, supervised ones first; 0 is the model as it came",
        y_label="nats per token",
    )


def _seconds(data: RunData) -> Chart | None:
    rows = [numbers(line.get("seconds")) for line in data.lines]
    phases = phases_of(data)
    return stacked_bars(
        "Where the time went",
        [f"{'s' if line.get('stage') == 'sft' else ''}{line.get('step', '?')}" for line in data.lines],
        {phase: [max(row.get(phase, 0.0), 0.0) for row in rows] for phase in phases},
        {phase: PHASE_COLOURS.get(phase, "other") for phase in phases},
        x_label="update (s: supervised)",
        y_label="seconds",
        wide=True,
    )
