"""How far one driver goes: verdicts from 1 to 16 simulated nodes, and verdicts a second from 64 evaluators.

    python benchmarks/scale.py                              # both, about four minutes on 2 cores
    python benchmarks/scale.py --nodes 1 2 4 --per-node 4 --seconds 2.0

The evaluators are Ray actors of the product's pool that sleep as long as a real judge takes and answer from a hash, so
that sixteen nodes fit on one machine; what is measured is the driver, the pool and Ray. Nodes are raylets of
ray.cluster_utils.Cluster with CPUs that they only claim to have. Efficiency is verdicts a second against the smallest
number of nodes, times as many.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

# In place of this folder, whose search.py would hide the package of that name.
sys.path[0] = str(Path(__file__).parent / "loop")

import recorded  # noqa: E402

from actors.settings import EvaluatorSettings, Timeouts  # noqa: E402
from actors.types import JudgeJob  # noqa: E402
from judge.settings import JudgeSettings  # noqa: E402
from judge.types import Candidate, Verdict  # noqa: E402
from tasks.loader import load_task  # noqa: E402
from tasks.types import Task  # noqa: E402

SETTLE_SECONDS = 2.0


class TimedJudge(recorded.RecordedJudge):
    """Takes as long as the candidate's first line says: ``# 2.0``."""

    def judge(self, task: Task, candidate: Candidate) -> Verdict:
        self._seconds = float(candidate.code.split(maxsplit=2)[1])
        return super().judge(task, candidate)


class TimedPool(recorded.JudgePool):
    actor_class = TimedJudge


def jobs(task: Task, seconds: float) -> Iterator[JudgeJob]:
    """Without end; each is another candidate."""
    number = 0
    while True:
        number += 1
        code = f"# {seconds} {number}\n" + "x = 1\n" * 200  # about as long as a kernel
        yield JudgeJob(job_id=f"{seconds}-{number}", task=task, candidate=Candidate(code=code))


def measure(pool: TimedPool, task: Task, seconds: float, during: float) -> dict[str, float]:
    """Verdicts a second over so many seconds, after a while for the stream to settle."""
    own = psutil.Process()
    ready = time.monotonic() + SETTLE_SECONDS + seconds
    count, started, memory, cpu = 0, 0.0, 0, 0.0
    for _ in pool.judge(jobs(task, seconds)):
        now = time.monotonic()
        if now < ready:
            continue
        if not started:
            started, memory, cpu = now, own.memory_info().rss, sum(own.cpu_times()[:2])
            continue
        count += 1
        if now - started >= during:
            break
    spent = time.monotonic() - started
    return {
        "verdicts_per_s": round(count / spent, 2),
        "driver_cpu_share": round((sum(own.cpu_times()[:2]) - cpu) / spent, 2),
        "driver_mb": round(own.memory_info().rss / 1e6, 1),
        "driver_mb_grown": round((own.memory_info().rss - memory) / 1e6, 1),
    }


def main() -> int:
    import ray
    from ray.cluster_utils import Cluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=(1, 2, 4, 8, 16))
    parser.add_argument("--per-node", type=int, default=4, help="evaluators on each node")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one judgement")
    parser.add_argument("--during", type=float, default=10.0, help="seconds of one measurement")
    parser.add_argument("--fast", type=float, default=0.05, help="seconds of one judgement in the driver's own test")
    arguments = parser.parse_args()
    ray.cloudpickle.register_pickle_by_value(recorded)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    task = load_task("gelu")
    report: dict[str, Any] = {"cores": os.cpu_count(), "judge_seconds": arguments.seconds, "steps": []}
    there = 0
    pool = None
    try:
        for count in arguments.nodes:
            for _ in range(count - there):
                cluster.add_node(num_cpus=arguments.per_node, include_dashboard=False, object_store_memory=80 << 20)
            there, size = count, count * arguments.per_node
            began = time.monotonic()
            if pool is None:
                timeouts = Timeouts(actor_start=240)
                settings = EvaluatorSettings(actors=size)
                pool = TimedPool(JudgeSettings(), settings, timeouts, role={"num_cpus": 1}, on_event=print)
            pool.resize(size)
            pool.wait_ready()
            line = {"nodes": count, "evaluators": size, "start_s": round(time.monotonic() - began, 1)}
            line |= measure(pool, task, arguments.seconds, arguments.during)
            line["ideal_per_s"] = round(size / arguments.seconds, 2)
            first = report["steps"][0] if report["steps"] else line
            line["efficiency"] = round(line["verdicts_per_s"] / first["verdicts_per_s"] * first["evaluators"] / size, 3)
            line["load"] = round(os.getloadavg()[0], 1)
            report["steps"].append(line)
            print(json.dumps(line), flush=True)
        assert pool is not None
        report["driver"] = measure(pool, task, arguments.fast, 2 * arguments.during) | {
            "judge_seconds": arguments.fast,
            "evaluators": there * arguments.per_node,
        }
        print(json.dumps(report["driver"]), flush=True)
    finally:
        if pool is not None:
            pool.close()
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
