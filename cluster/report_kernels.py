"""The kernels that a report shows, each with its difference from where it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from archive.types import Record
from cluster.listings import DiffLine, diff_lines, highlight_lines, visible
from cluster.report_data import TaskBest, best_record

MAX_KERNELS = 40
"""Listings of a page: a run over hundreds of tasks still opens at once."""


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """One kernel as the page shows it."""

    title: str
    subtitle: str
    analysis: str
    code: list[Markup]
    diff: list[DiffLine]
    diff_from: str
    """What the diff starts from; empty when there is nothing to compare with."""
    flags: tuple[str, ...]
    record_id: str


def kernel_views(records: Sequence[Record], bests: Sequence[TaskBest]) -> list[KernelView]:
    """The best kernel of each task, and the policy's own best where that is another."""
    by_id = {record.record_id: record for record in records}
    views = []
    for best in bests:
        members = [record for record in records if record.task_id == best.task_id]
        for record in _shown(best):
            views.append(_view(record, _ancestor(record, members, by_id)))
    return views[:MAX_KERNELS]


def _shown(best: TaskBest) -> list[Record]:
    found = [record for record in (best.best, best.policy_best) if record is not None]
    return found[:1] if len(found) == 2 and found[0].record_id == found[1].record_id else found


def _ancestor(record: Record, members: Sequence[Record], by_id: Mapping[str, Record]) -> Record | None:
    """The best exemplar that its prompt showed; without one, the plainest other kernel by an expert."""
    shown = [by_id[parent] for parent in record.parents if parent in by_id and by_id[parent].code]
    if shown:
        return best_record(shown) or shown[0]
    experts = [
        other for other in members if other.source == "expert" and other.code and other.record_id != record.record_id
    ]
    return min(experts, key=lambda other: other.score, default=None)


def _view(record: Record, ancestor: Record | None) -> KernelView:
    verdict = record.verdict
    low, high = verdict.speedup_low, verdict.speedup_high
    interval = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    who = record.source if record.step is None else f"{record.source}, step {record.step}"
    version = f", weights version {record.policy_version}" if record.policy_version is not None else ""
    return KernelView(
        title=visible(record.task_name),
        subtitle=f"{verdict.status} {record.score:.2f}×{interval}, written by {who}{version}",
        analysis=visible(record.analysis).strip()[:2000],
        code=highlight_lines(record.code),
        diff=diff_lines(ancestor.code, record.code) if ancestor else [],
        diff_from=_named(ancestor) if ancestor else "",
        flags=verdict.flags,
        record_id=record.record_id,
    )


def _named(record: Record) -> str:
    what = "a kernel by an expert" if record.source == "expert" else f"a kernel by {record.source}"
    return f"{what} ({record.verdict.status} {record.score:.2f}×)" if record.verdict.is_correct else what
