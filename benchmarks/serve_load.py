"""Load on a service of its own: many clients at once, mixed calls, 127.0.0.1 only; stops by itself.

    python benchmarks/serve_load.py                          # 256 clients for 30 s on a tiny random policy
    python benchmarks/serve_load.py --compare --model smollm2-135m-instruct     # and completions against bare vLLM

Each client draws its next call: a completion (whole or streamed), a job (two thirds are cancelled), the judge, a look
at a job, the models, a request that must be refused. Counted are wrong answers (a greedy completion that differs from
the one given before the load, a verdict that is not the candidate's, a refusal with another status), lost jobs
(accepted and not ended, or with events that contradict their state), answers 429 and 503 without Retry-After, and the
memory of all the service's processes. Exit code 1 when anything was wrong or lost. The engine computes in float32: in
bfloat16 the sums of another batch size are different enough to change a greedy answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "fused_gelu"
PROMPTS = [f"Kernel number {number} is fast because" for number in range(16)]
TOKENS = 24
START_SECONDS = 300.0
DRAIN_SECONDS = 300.0
"""How long jobs that were accepted may take after the load has ended."""
ROLLOUT = ("rollout.group_size=1", "rollout.max_tokens=24", "rollout.max_num_seqs=64", "rollout.dtype=float32")
MIX = (("whole", 50), ("stream", 25), ("refused", 8), ("look", 8), ("models", 5), ("job", 3), ("judge", 1))


@dataclass
class Tally:
    """What was seen."""

    calls: Counter[str] = field(default_factory=Counter)
    wait: Counter[int] = field(default_factory=Counter)
    """429 and 503, as a service under load should answer."""
    wrong: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    """Accepted jobs and the last event that was seen of each."""
    tokens: int = 0


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--model", default="tiny-random")
    parser.add_argument("--compare", action="store_true", help="completions of 64 clients against bare vLLM, too")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, service(Path(folder), options.model) as (url, pid):
        tally = Tally()
        memory = [resident_mb(pid)]
        rate = asyncio.run(load(url, options, tally, memory, pid))
        served = asyncio.run(completions_over_http(url, options)) if options.compare else 0.0
    report(options, tally, memory, rate)
    if options.compare:
        bare = asyncio.run(completions_bare(options))
        print(f"completions, 64 clients: {served:.0f} tokens/s served, {bare:.0f} bare vLLM, ratio {served / bare:.3f}")
    return 1 if tally.wrong else 0


@contextlib.contextmanager
def service(folder: Path, model: str) -> Iterator[tuple[str, int]]:
    """A `warpsmith serve` on a free port, ended at the end; its URL and process id."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        *(sys.executable, "-m", "cluster.cli", "serve", "--port", str(port), f"run.folder={folder}"),
        *(f"model.path={model}", "judge.pairs=3", "judge.calls=4", "evaluators.actors=1", *ROLLOUT),
        *("serving.max_queued=1000", "serving.max_completing=300"),
    ]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        end = time.monotonic() + START_SECONDS
        while "serving on" not in log.read_text():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the service did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.3)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def resident_mb(pid: int) -> float:
    """Memory of a process and all below it (MB): private pages, so that shared ones do not count many times."""
    total = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().uss
    return total / 2**20


async def load(url: str, options: argparse.Namespace, tally: Tally, memory: list[float], pid: int) -> float:
    """All clients until the time is over, then the jobs to their ends; returns calls/s."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as http:
        truth = {prompt: await _complete(http, options.model, prompt) for prompt in PROMPTS}
        until = time.monotonic() + options.seconds
        began = time.monotonic()
        clients = [
            _client(http, options.model, random.Random(f"{options.seed}-{number}"), truth, tally, until)
            for number in range(options.clients)
        ]
        watching = asyncio.create_task(_watch_memory(pid, memory))
        await asyncio.gather(*clients)
        rate = sum(tally.calls.values()) / (time.monotonic() - began)
        await _drain(http, tally)
        watching.cancel()
        memory.append(await asyncio.to_thread(resident_mb, pid))
    return rate


async def _watch_memory(pid: int, memory: list[float]) -> None:
    while True:
        await asyncio.sleep(5)
        memory.append(await asyncio.to_thread(resident_mb, pid))


async def _client(
    http: httpx.AsyncClient, model: str, rng: random.Random, truth: dict[str, str], tally: Tally, until: float
) -> None:
    kinds, weights = zip(*MIX, strict=True)
    while time.monotonic() < until:
        kind = rng.choices(kinds, weights)[0]
        began = time.monotonic()
        try:
            answer = await _call(http, model, kind, rng, truth, tally)
        except httpx.HTTPError as error:
            tally.wrong.append(f"{kind}: {type(error).__name__} {error}")
            continue
        tally.calls[kind] += 1
        tally.seconds.setdefault(kind, []).append(time.monotonic() - began)
        if answer in (429, 503):
            tally.wait[answer] += 1
            await asyncio.sleep(rng.uniform(0.5, 1.5))


async def _call(
    http: httpx.AsyncClient, model: str, kind: str, rng: random.Random, truth: dict[str, str], tally: Tally
) -> int:
    """One call; its status. What is wrong goes into the tally."""
    if kind in ("whole", "stream"):
        prompt = rng.choice(PROMPTS)
        body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "stream": kind == "stream"}
        answer = await http.post("/v1/completions", json=body)
        if _is_wait(answer, tally):
            return answer.status_code
        text = _text(answer) if answer.status_code == 200 else f"status {answer.status_code}: {answer.text[:200]}"
        tally.tokens += TOKENS
        if text != truth[prompt]:
            tally.wrong.append(f"{kind}: {prompt!r} -> {text!r}, not {truth[prompt]!r}")
        return answer.status_code
    if kind == "job":
        return await _job(http, rng, tally)
    if kind == "judge":
        name, right = rng.choice([("slow", {"correct", "win"}), ("wrong", {"incorrect"})])
        code = (EXAMPLE / f"{name}.py").read_text()
        body = {"task_source": (EXAMPLE / "task.py").read_text(), "code": code}
        answer = await http.post("/v1/judge", json=body)
        if not _is_wait(answer, tally) and answer.json().get("status") not in right:
            tally.wrong.append(f"judge: {name}.py is {answer.text[:200]}")
        return answer.status_code
    if kind == "look" and tally.jobs:
        answer = await http.get(f"/v1/jobs/{rng.choice(list(tally.jobs))}")
    elif kind == "refused":
        body = {"model": model, "prompt": "x", "max_tokens": -1}
        answer = await http.post("/v1/completions", json=body)
        if answer.status_code != 400:
            tally.wrong.append(f"refused: status {answer.status_code}, not 400")
        return answer.status_code
    else:
        answer = await http.get("/v1/models")
    if answer.status_code != 200:
        tally.wrong.append(f"{kind}: status {answer.status_code}")
    return answer.status_code


async def _job(http: httpx.AsyncClient, rng: random.Random, tally: Tally) -> int:
    """A job; two thirds are cancelled soon, the others are left to their end."""
    body = {"task_name": rng.choice(["softmax", "gelu"]), "max_candidates": 1}
    answer = await http.post("/v1/optimize", json=body)
    if _is_wait(answer, tally):
        return answer.status_code
    if answer.status_code != 202:
        tally.wrong.append(f"job: status {answer.status_code}: {answer.text[:200]}")
        return answer.status_code
    job_id = answer.json()["id"]
    tally.jobs[job_id] = "queued"
    if rng.random() < 0.67:
        await asyncio.sleep(rng.uniform(0, 0.5))
        cancelled = await http.delete(f"/v1/jobs/{job_id}")
        if cancelled.status_code != 200:
            tally.wrong.append(f"job: cancelling gave {cancelled.status_code}")
    return 202


def _is_wait(answer: httpx.Response, tally: Tally) -> bool:
    if answer.status_code not in (429, 503):
        return False
    if not answer.headers.get("retry-after", "").isdecimal():
        tally.wrong.append(f"{answer.status_code} without Retry-After: {answer.text[:200]}")
    return True


def _text(answer: httpx.Response) -> str:
    if "event-stream" not in answer.headers["content-type"]:
        return str(answer.json()["choices"][0]["text"])
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    if not lines or lines[-1] != "[DONE]":
        return f"a stream without its end: {answer.text[-200:]}"
    choices = [choice for line in lines[:-1] for choice in json.loads(line).get("choices", [])]
    return "".join(choice["text"] for choice in choices)


async def _complete(http: httpx.AsyncClient, model: str, prompt: str) -> str:
    body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    return _text((await http.post("/v1/completions", json=body)).raise_for_status())


async def _drain(http: httpx.AsyncClient, tally: Tally) -> None:
    """Every accepted job must end, with events that agree with its state. The waiting ones are cancelled after a while:
    there are more of them than a small machine can judge."""
    end = time.monotonic() + DRAIN_SECONDS
    open_jobs = set(tally.jobs)
    cancelled = False
    while open_jobs and time.monotonic() < end:
        if not cancelled and time.monotonic() > end - DRAIN_SECONDS + 10:
            cancelled = True
            for job_id in open_jobs:
                await http.delete(f"/v1/jobs/{job_id}")
        for job_id in list(open_jobs):
            job = (await http.get(f"/v1/jobs/{job_id}")).json()
            if job.get("state") in ("done", "failed", "cancelled"):
                open_jobs.discard(job_id)
                await _check_job(http, job, tally)
        await asyncio.sleep(0.5)
    tally.wrong += [f"job {job_id} was lost: it never ended" for job_id in open_jobs]


async def _check_job(http: httpx.AsyncClient, job: dict[str, Any], tally: Tally) -> None:
    events = (await http.get(f"/v1/jobs/{job['id']}/events")).text
    kinds = [line.removeprefix("event: ") for line in events.split("\n") if line.startswith("event: ")]
    tally.jobs[job["id"]] = job["state"]
    if not kinds or kinds[0] != "queued" or kinds[-1] != job["state"]:
        tally.wrong.append(f"job {job['id']} is {job['state']}, its events say {kinds}")
    if job["state"] == "failed":
        tally.wrong.append(f"job {job['id']} failed: {job['error']}")
    if job["state"] == "done" and (job["result"]["code"] is not None) != (job["result"]["status"] == "win"):
        tally.wrong.append(f"job {job['id']}: a kernel that is no win, or a win without one")


async def completions_over_http(url: str, options: argparse.Namespace) -> float:
    """Tokens/s that 64 clients get, each asking for one completion after the other."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as http:

        async def ask(number: int) -> int:
            prompt = f"{number} {PROMPTS[number % len(PROMPTS)]}"
            body = {"model": options.model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0.9}
            answer = (await http.post("/v1/completions", json=body)).raise_for_status()
            return int(answer.json()["usage"]["completion_tokens"])

        return await _rate(ask, options.seconds)


async def completions_bare(options: argparse.Namespace) -> float:
    """The same from vLLM's asynchronous engine in this process, without HTTP and Ray."""
    from cluster.config import load_config
    from learner.pretrained import prepare_model
    from serving.generation import Generation, Refusal
    from serving.policy import PolicyEngine

    config = load_config(None, list(ROLLOUT))
    engine = PolicyEngine(prepare_model(options.model), config.rollout, seed=config.run.seed)

    async def ask(number: int) -> int:
        prompt = f"{number} {PROMPTS[number % len(PROMPTS)]}"
        generation = Generation(request_id=f"r{number}", prompt=prompt, max_tokens=TOKENS, temperature=0.9)
        answers = await engine.complete(generation)
        assert not isinstance(answers, Refusal)
        return sum(answer.completion_tokens for answer in answers)

    try:
        return await _rate(ask, options.seconds)
    finally:
        engine.close()


async def _rate(ask: Any, seconds: float) -> float:
    for number in range(8):  # warm
        await ask(number)
    numbers = iter(range(10**9))
    began = time.monotonic()
    until = began + seconds
    tokens = 0

    async def client() -> None:
        nonlocal tokens
        while time.monotonic() < until:
            written = await ask(next(numbers))  # apart: += would read the sum before it waits
            tokens += written

    await asyncio.gather(*(client() for _ in range(64)))
    return tokens / (time.monotonic() - began)


def report(options: argparse.Namespace, tally: Tally, memory: list[float], rate: float) -> None:
    """The tally as a table."""
    print(f"{options.clients} clients, {options.seconds:g} s, {os.cpu_count()} cores, model {options.model}")
    print(f"{sum(tally.calls.values())} calls, {rate:.1f}/s; told to wait: {dict(tally.wait) or 'never'}")
    print(f"{'call':10} {'number':>7} {'median s':>9} {'p95 s':>8} {'worst s':>8}")
    for kind, seconds in sorted(tally.seconds.items()):
        ranked = sorted(seconds)
        p95 = ranked[int(0.95 * (len(ranked) - 1))]
        print(f"{kind:10} {len(seconds):7} {statistics.median(ranked):9.3f} {p95:8.3f} {ranked[-1]:8.3f}")
    states = Counter(tally.jobs.values())
    print(f"jobs accepted: {len(tally.jobs)} ({', '.join(f'{n} {state}' for state, n in states.items())})")
    print(f"memory of the service, MB: {memory[0]:.0f} before, {max(memory):.0f} at most, {memory[-1]:.0f} after")
    print(f"wrong or lost: {len(tally.wrong)}")
    for text in tally.wrong[:10]:
        print(f"  {text[:300]}")


if __name__ == "__main__":
    sys.exit(main())
