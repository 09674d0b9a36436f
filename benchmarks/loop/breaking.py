"""A training run on simulated nodes, the faults that break it, and the comparison with a run that nobody broke.

Simulated nodes (ray.cluster_utils.Cluster) carry the product's own pools, driver, archive and manifest; answers,
verdicts and updates come from hashes (benchmarks/loop/recorded.py), so that both runs have the same completions.
Compared are: every record with its verdict, every update's batch, and the learner's last state, which is a hash over
all batches in order. The exit code is 0 only when all are equal and no update is there twice.

Not broken here: Ray's GCS, which Ray brings back only with an external Redis; the driver's machine is the head's.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

WEIGHTS = {
    "evaluator_killed": 22,
    "evaluator_stopped": 10,
    "engine_killed": 14,
    "engine_stopped": 6,
    "learner_killed": 14,
    "learner_stopped": 4,
    "driver_killed": 8,
    "node_lost": 10,
    "disk_full": 6,
    "archive_slow": 6,
}
"""Of each hundred faults."""
ROLES = {"evaluator": "RecordedJudge", "engine": "RecordedEngine", "learner": "ChainLearner"}
RUN_ID = "chaos"
TMPFS_MB = 96


@dataclass(kw_only=True)
class Scene:
    """The cluster, the run on it, and what happened so far."""

    cluster: Any
    folder: Path
    log: Path
    rng: random.Random
    nodes: list[Any] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    ends: Counter[str] = field(default_factory=Counter)
    """How the driver ended: "0", "2", "-9"."""
    small_disk: bool = False

    def begin(self) -> None:
        """Starts the run, or starts it again."""
        env = os.environ | {"RAY_ADDRESS": self.cluster.address}
        command = [sys.executable, str(Path(__file__).with_name("chaos_run.py")), str(self.folder), RUN_ID]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)

    def finished(self) -> bool:
        """Whether the run has ended well; one that has ended otherwise is begun again."""
        assert self.process is not None
        code = self.process.poll()
        if code is None:
            return False
        self.ends[str(code)] += 1
        if code == 0:
            return True
        if sum(self.ends.values()) > 300:
            raise SystemExit(f"the run does not come back: {self.log.read_text()[-3000:]}")
        self.begin()
        return False

    def add_node(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=2, include_dashboard=False))

    def workers(self, name: str) -> list[psutil.Process]:
        """Ray's processes of one of the actor classes, on all nodes."""
        found = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                line = process.cmdline()
                if line and line[0].startswith(f"ray::{name}") and process.status() != psutil.STATUS_STOPPED:
                    found.append(process)
        return found

    def progress(self) -> tuple[int, int]:
        """Records in the archive, bytes of metrics."""
        run, records, size = self.folder / "chaos", 0, 0
        with suppress(sqlite3.Error):
            connection = sqlite3.connect(f"file:{run / 'archive.db'}?mode=ro", uri=True, timeout=1.0)
            with suppress(sqlite3.Error):
                records = connection.execute("select count(*) from records").fetchone()[0]
            connection.close()
        with suppress(OSError):
            size = (run / "metrics.jsonl").stat().st_size
        return records, size


def inject(scene: Scene, kind: str) -> bool:
    """One fault; False when there was nothing to break."""
    role, _, how = kind.partition("_")
    if role in ROLES:
        targets = scene.workers(ROLES[role])
        if not targets:
            return False
        with suppress(psutil.NoSuchProcess):
            scene.rng.choice(targets).send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            return True
        return False
    others: dict[str, Callable[[Scene], bool]] = {
        "driver_killed": _kill_driver,
        "node_lost": _lose_node,
        "disk_full": _fill_disk,
        "archive_slow": _slow_archive,
    }
    return others[kind](scene)


def _kill_driver(scene: Scene) -> bool:
    assert scene.process is not None
    if scene.process.poll() is not None:
        return False
    scene.process.kill()
    scene.process.wait()
    return True


def _lose_node(scene: Scene) -> bool:
    victim = scene.nodes.pop(scene.rng.randrange(len(scene.nodes)))
    scene.cluster.remove_node(victim, allow_graceful=False)
    time.sleep(scene.rng.uniform(0.5, 2.0))
    scene.add_node()
    return True


def _fill_disk(scene: Scene) -> bool:
    if not scene.small_disk or not (scene.folder / "chaos" / "state.json").exists():
        return False
    ballast = scene.folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    time.sleep(2.0)
    ballast.unlink(missing_ok=True)
    return True


def _slow_archive(scene: Scene) -> bool:
    path = scene.folder / "chaos" / "archive.db"
    if not path.exists():
        return False
    connection = sqlite3.connect(path, timeout=5.0)
    try:
        connection.execute("begin exclusive")
        time.sleep(3.0)
        connection.rollback()
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def result_of(folder: Path) -> dict[str, Any]:
    """What counts of a finished run, without when it was done and by whom."""
    from archive.store import Archive

    run = folder / "chaos"
    archive = Archive(f"sqlite:///{run / 'archive.db'}")
    records = {
        r.record_id: (
            r.task_name,
            r.group_id,
            r.step,
            r.policy_version,
            str(r.verdict.status),
            r.verdict.speedup,
            r.code,
        )
        for r in archive.records()
    }
    archive.close()
    state = json.loads((run / "state.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [(line["stage"], line["step"], line["batch"]) for line in lines]
    chain = json.loads((run / "checkpoints" / state["checkpoint"] / "chain.json").read_text())["chain"]
    return {"records": records, "updates": updates, "chain": chain, "finished": state["finished"]}


def differences(whole: dict[str, Any], broken: dict[str, Any]) -> list[str]:
    """What a broken run has otherwise than the whole one; nothing if all is well."""
    found = []
    before, after = whole["records"], broken["records"]
    if lost := before.keys() - after.keys():
        found.append(f"{len(lost)} records lost")
    if more := after.keys() - before.keys():
        found.append(f"{len(more)} records too many")
    if other := [key for key in before.keys() & after.keys() if before[key] != after[key]]:
        found.append(f"{len(other)} records differ, such as {before[other[0]][:6]} and {after[other[0]][:6]}")
    if doubled := [u for u, n in Counter(u[:2] for u in broken["updates"]).items() if n > 1]:
        found.append(f"updates counted twice: {doubled}")
    if whole["updates"] != broken["updates"]:
        found.append("batches differ")
    if whole["chain"] != broken["chain"]:
        found.append("the learner ended elsewhere")
    if not broken["finished"]:
        found.append("not finished")
    return found


def schedule(count: int, rng: random.Random, only: tuple[str, ...] = ()) -> list[str]:
    """Kinds of faults in random order, in the shares of WEIGHTS."""
    kinds = {kind: share for kind, share in WEIGHTS.items() if not only or kind in only}
    deck: list[str] = []
    while len(deck) < count:
        pack = [kind for kind, share in kinds.items() for _ in range(share)]
        rng.shuffle(pack)
        deck += pack
    return deck[:count]


def break_it(scene: Scene, faults: list[str], pause: tuple[float, float], end: float) -> dict[str, list[float]]:
    """Goes through the faults while the run is going; kind -> seconds until the run got further, for each fault.

    Ends when the run is finished, with or without faults left; after ``end`` (time.monotonic()) nothing is broken any
    more.
    """
    took: dict[str, list[float]] = {}
    while faults and time.monotonic() < end and not scene.finished():
        time.sleep(scene.rng.uniform(*pause))
        if scene.finished():
            break
        began, before = time.monotonic(), scene.progress()
        if not inject(scene, faults[0]):
            faults.append(faults.pop(0))  # nothing to break yet: something else first
            continue
        kind = faults.pop(0)
        while scene.progress() == before and not scene.finished() and time.monotonic() - began < 60:
            time.sleep(0.05)
        took.setdefault(kind, []).append(time.monotonic() - began)
        print(f"{sum(map(len, took.values()))} {kind}: {took[kind][-1]:.1f} s", file=sys.stderr, flush=True)
    last = time.monotonic() + 180
    while not scene.finished():
        if time.monotonic() > last:
            raise SystemExit(f"the run hangs: {scene.log.read_text()[-3000:]}")
        time.sleep(0.1)
    return took


def open_scene(root: Path, seed: int, nodes: int, *, small_disk: bool) -> Scene:
    """A head and so many nodes of two CPUs; the run's folder on a disk of its own where that can be mounted."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"health_check_period_ms": 1000}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    folder = root / "runs"
    folder.mkdir()
    scene = Scene(cluster=cluster, folder=folder, log=root / "driver.log", rng=random.Random(seed))
    for _ in range(nodes):
        scene.add_node()
    if small_disk:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_MB}m", "tmpfs", str(folder)]
        scene.small_disk = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if not scene.small_disk:
            print("no disk of its own could be mounted (needs root): disk_full is left out", flush=True)
    return scene


def close_scene(scene: Scene) -> None:
    """Ends what was started."""
    if scene.process is not None and scene.process.poll() is None:
        scene.process.kill()
        scene.process.wait()
    scene.cluster.shutdown()
    if scene.small_disk:
        subprocess.run(["umount", "-l", str(scene.folder)], capture_output=True, check=False)


def chaos(
    root: Path,
    faults: list[str],
    *,
    seed: int,
    nodes: int = 3,
    pause: tuple[float, float] = (0.3, 1.5),
    seconds: float = 3600.0,
) -> dict[str, Any]:
    """A whole run, then broken ones until the faults or the seconds are used up; the report that is printed."""
    scene = open_scene(root, seed, nodes, small_disk="disk_full" in faults)
    if not scene.small_disk:
        faults = [kind for kind in faults if kind != "disk_full"]
    faults = list(faults)
    took: dict[str, list[float]] = {}
    wrong: list[str] = []
    rounds, began = 0, time.monotonic()
    try:
        scene.begin()
        while not scene.finished():
            time.sleep(0.1)
        whole, whole_seconds = result_of(scene.folder), time.monotonic() - began
        scene.ends.clear()
        while faults and time.monotonic() - began < seconds:
            rounds += 1
            shutil.rmtree(scene.folder / "chaos")
            scene.begin()
            for kind, waits in break_it(scene, faults, pause, began + seconds).items():
                took.setdefault(kind, []).extend(waits)
            wrong += [f"run {rounds}: {line}" for line in differences(whole, result_of(scene.folder))]
    finally:
        close_scene(scene)
    return {
        "faults": sum(map(len, took.values())),
        "left": len(faults),
        "runs": rounds,
        "records_each": len(whole["records"]),
        "updates_each": len(whole["updates"]),
        "whole_run_seconds": round(whole_seconds, 1),
        "seconds": round(time.monotonic() - began, 1),
        "driver_ends": dict(scene.ends),
        "recovery": {
            kind: {"faults": len(s), "median_s": round(statistics.median(s), 2), "longest_s": round(max(s), 2)}
            for kind, s in sorted(took.items())
        },
        "wrong": wrong,
    }
