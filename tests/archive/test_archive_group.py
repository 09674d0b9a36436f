"""Group commit: threads that write at once share transactions, and each is told of its own row."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from archive.group import GroupCommit, Row
from archive.store import Archive
from archive.types import Record
from judge.types import Status, Verdict


def record(record_id: str) -> Record:
    verdict = Verdict(status=Status.CORRECT, speedup=1.0)
    return Record(
        record_id=record_id, run_id="r", task_name="t", task_id="t", source="s", operator="o", code="x", verdict=verdict
    )


def test_each_record_is_new_to_one_thread_only_and_on_disk_when_it_is_told(tmp_path: Path) -> None:
    archive, other = Archive(str(tmp_path / "a.db")), Archive(str(tmp_path / "a.db"))
    told: list[tuple[str, bool, bool]] = []

    def write(writer: int) -> None:
        for number in range(40):
            # Half of the ids are written by two threads.
            name = f"{writer // 2 if number % 2 else writer}-{number}"
            told.append((name, archive.add(record(name)), number % 10 or other.get(name) is not None))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 16 * 40
    assert all(visible for _, _, visible in told)
    names = {name for name, _, _ in told}
    assert sorted(name for name, new, _ in told if new) == sorted(names)
    assert archive.count() == len(names)
    archive.close()
    other.close()


def test_one_bad_row_fails_alone() -> None:
    batches: list[int] = []
    held = threading.Event()

    def write(rows: Sequence[Row]) -> list[bool]:
        batches.append(len(rows))
        held.wait(5)
        if any(row["id"] == "bad" for row in rows):
            raise ValueError("bad row")
        return [True for _ in rows]

    group = GroupCommit(write)
    results: dict[str, object] = {}

    def add(name: str) -> None:
        try:
            results[name] = group.add({"id": name})
        except ValueError as error:
            results[name] = str(error)

    threads = [threading.Thread(target=add, args=(name,)) for name in ("first", "a", "bad", "b")]
    for thread in threads:
        thread.start()
    while len(group._waiting) < 3:
        threading.Event().wait(0.01)
    held.set()
    for thread in threads:
        thread.join()
    assert results == {"first": True, "a": True, "b": True, "bad": "bad row"}
    assert batches == [1, 3, 1, 1, 1]


def test_an_interrupt_of_the_writing_thread_loses_nobody_elses_row() -> None:
    calls: list[int] = []

    def write(rows: Sequence[Row]) -> list[bool]:
        calls.append(len(rows))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return [True for _ in rows]

    group = GroupCommit(write)
    with pytest.raises(KeyboardInterrupt):
        group.add({"id": "interrupted"})
    assert group.add({"id": "next"})
    assert calls == [1, 1]


def test_an_interrupted_writer_hands_over_to_those_who_wait() -> None:
    started, go = threading.Event(), threading.Event()
    calls: list[list[str]] = []

    def write(rows: Sequence[Row]) -> list[bool]:
        calls.append([row["id"] for row in rows])
        if len(calls) == 1:
            started.set()
            go.wait(5)
            raise KeyboardInterrupt
        return [True for _ in rows]

    group = GroupCommit(write)
    told: list[bool] = []

    def follow() -> None:
        started.wait(5)
        told.append(group.add({"id": "follower"}))

    def lead() -> None:
        with pytest.raises(KeyboardInterrupt):
            group.add({"id": "leader"})

    threads = [threading.Thread(target=lead), threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    while not group._waiting:
        threading.Event().wait(0.01)
    go.set()
    for thread in threads:
        thread.join()
    assert told == [True]
    assert calls == [["leader"], ["follower"]]
