"""Who descends from whom, read off the parents of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archive.types import Record
from judge.types import Status

REPAIR = "repair"


def made(record: Record) -> tuple[int, str, str]:
    """Sort key: the order in which records were made.

    Those of a training step are ordered by their ids, since verdicts of one step arrive in any order and a resumed run
    must see the same.
    """
    return record.step or 0, record.created_at.isoformat() if record.step is None else "", record.record_id


def repair_depth(record: Record, by_id: Mapping[str, Record]) -> int:
    """How many repairs in a row led to this record: 0 for one that is no repair."""
    depth, seen = 0, set[str]()
    current: Record | None = record
    while current is not None and current.operator == REPAIR and current.record_id not in seen:
        seen.add(current.record_id)
        depth += 1
        current = by_id.get(current.parents[-1]) if current.parents else None
    return depth


def repairable(records: Sequence[Record], most: int) -> list[Record]:
    """Failures with code that nobody has tried to mend and that follow fewer than `most` repairs; the oldest first.

    After `most` failed repairs in a row there is nothing left of that line to mend: the search translates anew.
    """
    by_id = {record.record_id: record for record in records}
    tried = {parent for record in records if record.operator == REPAIR for parent in record.parents}
    failures = [
        record
        for record in records
        if record.code
        and not record.verdict.is_correct
        and record.verdict.status not in (Status.JUDGE_ERROR, Status.REJECTED)
        and record.record_id not in tried
        and repair_depth(record, by_id) < most
    ]
    return sorted(failures, key=made)


def ancestors(record: Record, by_id: Mapping[str, Record]) -> list[Record]:
    """All records it descends from, each once, the nearest first."""
    found: dict[str, Record] = {}
    queue = list(record.parents)
    while queue:
        parent = by_id.get(queue.pop(0))
        if parent is not None and parent.record_id not in found and parent.record_id != record.record_id:
            found[parent.record_id] = parent
            queue += parent.parents
    return list(found.values())
