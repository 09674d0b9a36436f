"""The archive as a static site: a few pages, one script, and data in chunks that are loaded when they are needed.

    build_site(archive, Path("out"))      # open out/index.html

Two passes over the archive: the first keeps a short row of each kernel (rank, lineage, words of its code), the second
writes the kernels' own data in chunks. Memory grows by some hundred bytes a kernel, not by its code.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archive.errors import ArchiveError
from archive.similarity import index_of
from archive.site.chunks import fnv1a, write_chunk
from archive.site.explain import explain_mark, explain_rejection, suspicions
from archive.site.projection import project
from archive.store import Archive
from archive.types import ArchivedTask, Record
from judge.types import Status

INDEX_CHUNK = 1000
TASK_CHUNK = 2000
KERNELS_PER_CHUNK = 48
WORD_SHARDS = 64
COMMON_SHARE = 0.25
"""Words in more than this share of a large archive tell kernels apart too little to be kept."""
GALLERY_LIMIT = 200
"""Kernels that a gallery shows of each kind; it says how many there are."""
STATIC_ROWS = 300
_WORD = re.compile(r"[A-Za-z_]\w{2,39}")
_HERE = Path(__file__).parent
_PAGES = ("index", "tasks", "task", "kernel", "compare", "suspicious", "rejected", "search")
_MARKER = ".warpsmith-site"
_RANK = {Status.WIN: 0, Status.CORRECT: 1}


@dataclass(frozen=True, kw_only=True)
class Built:
    """What was written."""

    kernels: int
    tasks: int
    bytes: int


@dataclass(kw_only=True)
class _Pass:
    """What the first pass over the archive keeps."""

    rows: list[list[Any]] = field(default_factory=list)
    """A row a kernel in the archive's order: the columns of ``_row``."""
    ranks: list[tuple[int, float, int]] = field(default_factory=list)
    parents: list[tuple[str, ...]] = field(default_factory=list)
    children: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    words: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    suspicious: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    rejected: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    messages: dict[int, str] = field(default_factory=dict)
    names: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """kind ("task", "source", "operator", "flag") -> value -> its number."""
    task_names: dict[str, str] = field(default_factory=dict)

    def number(self, kind: str, value: str) -> int:
        return self.names[kind].setdefault(value, len(self.names[kind]))


def build_site(archive: Archive, out: Path, *, title: str = "Kernel archive") -> Built:
    """Write the site into ``out``, in place of an earlier one.

    Raises ArchiveError when ``out`` holds something else, or cannot be written.
    """
    _refuse_foreign(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise ArchiveError(f"{out}: cannot be written ({error.strerror}); give another folder") from error
    try:
        built = _write(archive, partial, title)
        partial.chmod(0o755)
        shutil.rmtree(out, ignore_errors=True)
        partial.rename(out)
    except OSError as error:
        raise ArchiveError(f"{out}: cannot be written ({error.strerror}); check the folder and its space") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return built


def _refuse_foreign(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ArchiveError(f"{out}: is a file; give a folder for the site")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARKER).exists():
        raise ArchiveError(f"{out}: holds files that are no earlier site; give a new or an empty folder")


def _write(archive: Archive, folder: Path, title: str) -> Built:
    data = folder / "data"
    data.mkdir()
    (folder / _MARKER).write_text("Made by `warpsmith site`, which replaces this folder.\n")
    found = _first_pass(archive)
    total = len(found.rows)
    order = sorted(range(total), key=lambda place: found.ranks[place])
    position = {place: rank for rank, place in enumerate(order)}
    ranked = [found.rows[place] for place in order]
    for chunk, start in enumerate(range(0, total, INDEX_CHUNK)):
        write_chunk(data, f"index-{chunk}", ranked[start : start + INDEX_CHUNK])
    tasks = _write_tasks(archive, data, found)
    buckets = max(1, -(-total // KERNELS_PER_CHUNK))
    _write_kernels(archive, data, found, buckets)
    common = _write_words(data, found, position)
    _write_galleries(data, found)
    meta = {
        "title": title,
        "kernels": total,
        "indexChunk": INDEX_CHUNK,
        "kernelChunks": buckets,
        "wordShards": WORD_SHARDS,
        "commonWords": common,
        "tasks": tasks,
        "sources": list(found.names["source"]),
        "operators": list(found.names["operator"]),
        "flags": list(found.names["flag"]),
        "statuses": [str(status) for status in Status],
        "marks": {mark: explain_mark(mark) for mark in found.suspicious},
    }
    write_chunk(data, "meta", meta)
    _write_pages(folder, title, meta, ranked)
    return Built(kernels=total, tasks=len(tasks), bytes=sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()))


def _first_pass(archive: Archive) -> _Pass:
    found = _Pass()
    for place, record in enumerate(archive.iterate()):
        verdict = record.verdict
        found.task_names.setdefault(record.task_id, record.task_name)
        found.rows.append(_row(found, record))
        low = verdict.speedup_low if verdict.status is Status.WIN else verdict.speedup
        found.ranks.append((_RANK.get(verdict.status, 2), -(low or 0.0), -place))
        found.parents.append(record.parents)
        for parent in record.parents:
            found.children[parent].append(record.record_id)
        for word in set(_WORD.findall(record.code)):
            found.words[word.lower()].append(place)
        for mark in suspicions(verdict):
            found.suspicious[mark].append(place)
            found.messages[place] = verdict.message
        if verdict.status is Status.REJECTED:
            found.rejected[explain_rejection(verdict.message)].append(place)
            found.messages[place] = verdict.message
    return found


def _row(found: _Pass, record: Record) -> list[Any]:
    """[id, task, status, speedup, low, high, source, operator, step, flags, seconds since 1970]: what lists show."""
    verdict = record.verdict
    return [
        record.record_id,
        found.number("task", record.task_id),
        list(Status).index(verdict.status),
        _rounded(verdict.speedup),
        _rounded(verdict.speedup_low),
        _rounded(verdict.speedup_high),
        found.number("source", record.source),
        found.number("operator", record.operator),
        record.step,
        [found.number("flag", flag) for flag in verdict.flags],
        int(record.created_at.timestamp()),
    ]


def _write_tasks(archive: Archive, data: Path, found: _Pass) -> list[dict[str, Any]]:
    """Chunks of each task's kernels in their order of time; returns what the pages know of every task."""
    known = archive.tasks()
    members: dict[int, list[int]] = defaultdict(list)
    for place, row in enumerate(found.rows):
        members[row[1]].append(place)
    index = index_of(archive)
    where = {record_id: place for place, record_id in enumerate(index.record_ids)}
    tasks = []
    for task_id, number in found.names["task"].items():
        rows = [found.rows[place] for place in members[number]]
        with_code = [row[0] for row in rows if row[0] in where]
        points = project(index.vectors[[where[record_id] for record_id in with_code]])
        spot = dict(zip(with_code, points, strict=True))
        listed = [
            [row, list(found.parents[place]), spot.get(row[0])]
            for place, row in zip(members[number], rows, strict=True)
        ]
        for part, start in enumerate(range(0, len(listed), TASK_CHUNK)):
            write_chunk(data, f"task-{number}-{part}", listed[start : start + TASK_CHUNK])
        tasks.append(_task_summary(task_id, found.task_names[task_id], known.get(task_id), rows))
        write_chunk(data, f"source-{number}", known[task_id].source if task_id in known else "")
    return tasks


def _task_summary(task_id: str, name: str, task: ArchivedTask | None, rows: list[list[Any]]) -> dict[str, Any]:
    counts: dict[int, int] = defaultdict(int)
    for row in rows:
        counts[row[2]] += 1
    win = list(Status).index(Status.WIN)
    best = max((row for row in rows if row[2] == win), key=lambda row: row[4] or 0.0, default=None)
    return {
        "id": task_id,
        "name": name,
        "level": task.level if task else 0,
        "shapes": task.shapes if task else {},
        "kernels": len(rows),
        "parts": -(-len(rows) // TASK_CHUNK),
        "counts": dict(counts),
        "best": best,
    }


def _write_kernels(archive: Archive, data: Path, found: _Pass, buckets: int) -> None:
    """Each kernel's own data, in the chunk that its id's hash names. Chunks are gathered bucket range by range, so that
    a range of them is in memory at a time."""
    at_once = 256
    places = {row[0]: place for place, row in enumerate(found.rows)}
    for start in range(0, buckets, at_once):
        chunks: dict[int, dict[str, Any]] = {bucket: {} for bucket in range(start, min(start + at_once, buckets))}
        for record in archive.iterate():
            chunk = chunks.get(fnv1a(record.record_id) % buckets)
            if chunk is not None and record.record_id in places:  # not one that came after the first pass
                chunk[record.record_id] = _details(found, record, places[record.record_id])
        for bucket, content in chunks.items():
            write_chunk(data, f"kernels-{bucket}", content)


def _details(found: _Pass, record: Record, place: int) -> dict[str, Any]:
    verdict = record.verdict.model_dump(mode="json")
    rejected = record.verdict.status is Status.REJECTED
    return {
        "row": found.rows[place],
        "code": record.code,
        "analysis": record.analysis,
        "prompt": record.prompt[:200_000],
        "parents": list(record.parents),
        "children": found.children.get(record.record_id, [])[:200],
        "verdict": verdict,
        "run": record.run_id,
        "group": record.group_id,
        "model": record.model,
        "policyVersion": record.policy_version,
        "tokens": [record.prompt_tokens, record.completion_tokens],
        "cost": record.cost_usd,
        "software": record.software,
        "profiles": {name: text[:50_000] for name, text in record.extra.items() if name != "published"},
        "created": record.created_at.isoformat(timespec="seconds"),
        "why": [list(explain_rejection(record.verdict.message))] if rejected else [],
        "marks": [[mark, explain_mark(mark)] for mark in suspicions(record.verdict)],
    }


def _write_words(data: Path, found: _Pass, position: dict[int, int]) -> list[str]:
    """Word -> ranks of the kernels whose code has it, as differences; returns the words that were too common."""
    limit = max(200.0, COMMON_SHARE * len(found.rows))
    shards: list[dict[str, list[int]]] = [{} for _ in range(WORD_SHARDS)]
    common = []
    for word, places in found.words.items():
        if len(places) > limit:
            common.append(word)
            continue
        ranks = sorted(position[place] for place in set(places))
        shards[fnv1a(word) % WORD_SHARDS][word] = [b - a for a, b in zip([0, *ranks], ranks, strict=False)]
    for number, shard in enumerate(shards):
        write_chunk(data, f"words-{number}", shard)
    return sorted(common)[:2000]


def _write_galleries(data: Path, found: _Pass) -> None:
    def group(name: str, text: str, places: Iterable[int]) -> dict[str, Any]:
        chosen = sorted(places, key=lambda place: found.ranks[place])
        shown = [[found.rows[place], found.messages.get(place, "")[:300]] for place in chosen[:GALLERY_LIMIT]]
        return {"name": name, "text": text, "count": len(chosen), "kernels": shown}

    suspicious = [group(mark, explain_mark(mark), places) for mark, places in found.suspicious.items()]
    rejected = [group(name, text, places) for (name, text), places in found.rejected.items()]
    for name, groups in (("suspicious", suspicious), ("rejected", rejected)):
        write_chunk(data, name, sorted(groups, key=lambda one: -one["count"]))


def _write_pages(folder: Path, title: str, meta: dict[str, Any], ranked: list[list[Any]]) -> None:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    solved = sorted((task for task in meta["tasks"] if task["best"]), key=lambda task: -(task["best"][4] or 0.0))
    wins = sum(1 for row in ranked if row[2] == list(Status).index(Status.WIN))
    context = {"site": title, "meta": meta, "solved": solved[:STATIC_ROWS], "wins": wins}
    for page in _PAGES:
        text = environment.get_template(f"{page}.html").render(page=page, **context)
        (folder / f"{page}.html").write_text(text, encoding="utf-8")
    for asset in (_HERE / "assets").iterdir():
        if asset.suffix in (".js", ".css"):
            shutil.copyfile(asset, folder / asset.name)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
