"""The service for real: Ray Serve, vLLM with a tiny random policy, the judge.

One server for all tests of this file; the last ones kill it and end the one that is started after it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from archive.store import Archive
from judge.types import Status

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WARPSMITH = Path(sys.executable).with_name("warpsmith")
EXAMPLE = (ROOT / "examples" / "fused_gelu" / "task.py").read_text()


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    url: str
    port: int
    archive: Path
    log: Path

    def call(self, path: str, fields: Any = None, raw: bytes | None = None, seconds: float = 240) -> tuple[int, Any]:
        body = raw if raw is not None else None if fields is None else json.dumps(fields).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body), timeout=seconds) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def put(self, path: str, fields: Any) -> tuple[int, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(fields).encode(), method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@contextlib.contextmanager
def serving(folder: Path, name: str = "log") -> Iterator[Server]:
    """A server on a free port; ended with all its processes, whatever happens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        *(WARPSMITH, "serve", "--port", str(port), f"run.folder={folder}", "model.path=tiny-random"),
        *("rollout.max_tokens=16", "rollout.group_size=2", "judge.pairs=3", "judge.calls=4", "evaluators.actors=1"),
        "serving.job_lease_seconds=4",
    ]
    log = folder / name
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=os.environ | {"RAY_TMPDIR": "/tmp"}
        )
    try:
        end = time.monotonic() + 240
        while "serving on" not in log.read_text():
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
        yield Server(process, f"http://127.0.0.1:{port}", port, folder / "optimize" / "archive.db", log)
    finally:
        family = family_of(process.pid)
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
        kill(family)


def family_of(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def kill(processes: list[psutil.Process]) -> None:
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("serve")) as server:
        yield server


def test_health_is_told(server: Server) -> None:
    health = {"status": "ok", "policy_version": 0, "jobs": {"queued": 0, "running": 0}}
    assert server.call("/healthz") == (200, health)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"task_source": "def x(:"}, 422, "not Python"),
        ({"task_source": "x = 1"}, 422, "no Model at top level"),
        ({"task_name": "no_such_task"}, 422, "no task of the suite"),
        ({"task_name": "examples/fused_gelu/task.py"}, 422, "no task of the suite"),
        ({"task": EXAMPLE}, 422, "Extra inputs are not permitted"),
        ({"task_name": "softmax", "max_candidates": 10**6}, 422, "at most 16"),
    ],
)
def test_what_cannot_be_used_is_a_one_line_error(server: Server, fields: Any, status: int, words: str) -> None:
    code, answer = server.call("/v1/optimize", fields)
    assert code == status
    assert set(answer) == {"error"}
    assert words in answer["error"]
    assert "\n" not in answer["error"]


def test_other_errors_are_json_too(server: Server) -> None:
    assert server.call("/v1/optimize", raw=b"{")[0] == 400
    assert server.call("/v1/optimize", raw=b"x" * 300_000)[0] == 413
    assert server.call("/v1/optimize")[0] == 405
    assert server.call("/nothing")[0] == 404


def test_a_task_that_fails_is_the_requests_fault(server: Server) -> None:
    broken = EXAMPLE + "\n\ndef get_inputs():\n    raise RuntimeError('no inputs today')\n"
    code, answer = server.call("/v1/optimize?wait=true", {"task_source": broken, "max_candidates": 1})
    assert code == 422
    assert "no inputs today" in answer["error"]


def test_only_a_verified_kernel_is_returned(server: Server) -> None:
    """A tiny random policy writes none, so whatever wins here is an expert's, and the answer says so."""
    code, answer = server.call("/v1/optimize?wait=true", {"task_name": "squared_relu", "max_candidates": 2})
    assert code == 200, answer
    assert answer["asked"] == 2
    archive = Archive(str(server.archive))
    records = {record.record_id: record for record in archive.records()}
    archive.close()
    assert sum(record.source == "policy" for record in records.values()) == 2
    if answer["status"] == "win":
        record = records[answer["record_id"]]
        assert record.verdict.status is Status.WIN
        assert record.operator == "confirm"
        assert (answer["code"], answer["source"]) == (record.code, "expert")
        assert 1.01 < answer["speedup_low"] <= answer["speedup"] <= answer["speedup_high"]
    else:
        assert (answer["status"], answer["code"], answer["record_id"]) == ("none", None, None)


def test_a_client_that_goes_away_does_not_block_the_next(server: Server) -> None:
    with pytest.raises(TimeoutError):
        server.call("/v1/optimize?wait=true", {"task_source": EXAMPLE, "max_candidates": 16}, seconds=0.5)
    code, answer = server.call("/v1/optimize?wait=true", {"task_source": EXAMPLE, "max_candidates": 1})
    assert code == 200, answer
    assert server.call("/healthz")[1]["jobs"] == {"queued": 0, "running": 0}
    assert [job["state"] for job in server.call("/v1/jobs")[1][:2]] == ["done", "cancelled"]


def test_events_tell_every_record_as_it_comes(server: Server) -> None:
    code, job = server.call("/v1/optimize", {"task_name": "gelu", "max_candidates": 2})
    assert code == 202, job
    seen: list[tuple[str, Any]] = []
    with urllib.request.urlopen(f"{server.url}/v1/jobs/{job['id']}/events", timeout=240) as stream:
        kind = ""
        for line in stream:
            text = line.decode().strip()
            kind = text.removeprefix("event: ") if text.startswith("event: ") else kind
            if text.startswith("data: "):
                seen.append((kind, json.loads(text.removeprefix("data: "))))
                if kind == "verdict" and "middle" not in job:
                    job["middle"] = server.call(f"/v1/jobs/{job['id']}")[1]["state"]
    assert job["middle"] == "running"
    assert seen[0][0] == "queued"
    assert seen[-1][0] == "done", seen[-1]
    archive = Archive(str(server.archive))
    (run_id,) = {archive.get(data["record_id"]).run_id for kind, data in seen if kind == "verdict"}  # type: ignore[union-attr]
    told = [data["record_id"] for kind, data in seen if kind == "verdict"]
    assert told == [record.record_id for record in archive.records(run_id=run_id)]
    archive.close()
    assert server.call(f"/v1/jobs/{job['id']}")[1]["result"] == seen[-1][1]["result"]


def test_the_judge_tells_right_from_wrong(server: Server) -> None:
    for name, statuses in (("fast", {"win", "correct"}), ("wrong", {"incorrect"})):
        code = (ROOT / "examples" / "fused_gelu" / f"{name}.py").read_text()
        status, verdict = server.call("/v1/judge", {"task_source": EXAMPLE, "code": code})
        assert status == 200, verdict
        assert verdict["status"] in statuses


def test_posted_code_runs_in_the_sandbox_only(server: Server, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    mark = tmp_path / "mark"
    line = f"\n\ntry:\n    open({str(mark)!r}, 'w').write('here')\nexcept OSError:\n    pass\n"
    code = (ROOT / "examples" / "fused_gelu" / "slow.py").read_text()
    assert server.call("/v1/judge", {"task_source": EXAMPLE + line, "code": code + line})[0] == 200
    assert server.call("/v1/optimize?wait=true", {"task_source": EXAMPLE + line, "max_candidates": 1})[0] == 200
    assert not mark.exists()


def test_openais_client_is_served_by_the_policy(server: Server) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
    (model,) = client.models.list()
    ask: Any = {"model": model.id, "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 12}
    greedy = client.chat.completions.create(**ask, temperature=0)
    assert greedy.usage is not None
    assert 0 < greedy.usage.completion_tokens <= 12
    assert greedy.choices[0].message.content
    streamed = client.chat.completions.create(**ask, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == greedy.choices[0].message.content
    seeded = [client.chat.completions.create(**ask, seed=3, n=2, logprobs=True, top_logprobs=2) for _ in range(2)]
    assert seeded[0].choices == seeded[1].choices
    logprobs = seeded[0].choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(one.token for one in logprobs.content) == seeded[0].choices[0].message.content
    text = client.completions.create(model=model.id, prompt=["Once", "Twice"], max_tokens=4, temperature=0)
    assert [choice.index for choice in text.choices] == [0, 1]
    with pytest.raises(openai.BadRequestError, match="this model's context is"):
        client.chat.completions.create(**ask | {"messages": [{"role": "user", "content": "word " * 20000}]})


def test_new_weights_come_in_without_a_failed_request(server: Server, tmp_path: Path) -> None:
    import openai

    from learner.pretrained import prepare_model, tiny_model

    folder = tmp_path / "plain"
    tiny_model(folder, seed=5)
    published = prepare_model(str(folder))
    digest = hashlib.sha256((published / "model.safetensors").read_bytes()).hexdigest()
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
    ask: Any = {"model": "tiny-random", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    old = client.completions.create(**ask).choices[0].text
    answers: list[tuple[str, str]] = []
    stop = threading.Event()

    def keep_asking() -> None:
        while not stop.is_set():
            answer = client.completions.create(**ask)
            answers.append((answer.system_fingerprint or "", answer.choices[0].text))

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert server.put("/v1/weights", {"policy_version": 9, "path": str(published), "sha256": "0" * 64})[0] == 422
    assert server.put("/v1/weights", {"policy_version": 9, "path": str(published), "sha256": digest})[0] == 202
    end = time.monotonic() + 60
    while server.call("/healthz")[1]["policy_version"] != 9 and time.monotonic() < end:
        time.sleep(0.2)
    number = len(answers)
    while len(answers) < number + 8 and time.monotonic() < end:
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join(60)
    new = client.completions.create(**ask).choices[0].text
    assert new != old
    assert set(answers) == {("policy-0", old), ("policy-9", new)}  # no answer is half of each, and none is missing


def test_a_second_server_on_the_port_says_so_in_one_line(server: Server) -> None:
    done = subprocess.run(
        [WARPSMITH, "serve", "--port", str(server.port)], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == f"warpsmith: port {server.port} on 127.0.0.1: Address already in use: choose another with --port"


@dataclass
class Killed:
    """What a killed server was doing, and the server that was started in its folder."""

    job: str
    waiting: str
    earlier: set[str]
    """Records from before the two jobs."""
    before: set[str]
    """Records that the kill found, without those."""
    policy_version: int
    second: Server


@pytest.fixture(scope="module")
def killed(server: Server) -> Iterator[Killed]:
    """Ends the server of this file in the middle of a job: only the last tests may ask for it."""
    earlier = set(_records(server))
    job = "/v1/jobs/" + server.call("/v1/optimize", {"task_name": "softmax", "max_candidates": 6})[1]["id"]
    waiting = "/v1/jobs/" + server.call("/v1/optimize", {"task_name": "gelu", "max_candidates": 1})[1]["id"]
    end = time.monotonic() + 120
    while server.call(job)[1]["asked"] == 0 and time.monotonic() < end:
        time.sleep(0.05)
    assert server.call(job)[1]["state"] == "running"
    version = server.call("/healthz")[1]["policy_version"]
    kill(family_of(server.process.pid))
    before = set(_records(server)) - earlier
    with serving(server.archive.parents[1], "second") as second:
        yield Killed(job, waiting, earlier, before, version, second)


def _records(server: Server) -> dict[str, str]:
    """Record -> who wrote it."""
    archive = Archive(str(server.archive))
    found = {record.record_id: record.source for record in archive.records()}
    archive.close()
    return found


def test_jobs_and_weights_survive_a_killed_server(killed: Killed) -> None:
    assert killed.before
    second = killed.second
    end = time.monotonic() + 240
    while (done := second.call(killed.waiting)[1])["state"] != "done" and time.monotonic() < end:
        time.sleep(0.2)
    assert done["state"] == "done", done
    done = second.call(killed.job)[1]
    assert (done["state"], done["attempts"], done["result"]["asked"]) == ("done", 2, 6)
    assert second.call("/healthz")[1]["policy_version"] == killed.policy_version
    records = {one: source for one, source in _records(second).items() if one not in killed.earlier}
    assert killed.before <= set(records)
    assert list(records.values()).count("policy") in range(6, 10)  # of a round cut off, the judged stay


def test_ctrl_c_ends_it_and_leaves_nothing(killed: Killed) -> None:
    """The last test: it ends the last server of this file."""
    server = killed.second
    family = psutil.Process(server.process.pid).children(recursive=True)
    assert len(family) > 5
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=60) == 130
    assert not psutil.wait_procs(family, timeout=10)[1]
    log = server.log.read_text()
    assert "Traceback" not in log
    assert log.splitlines()[-1].startswith("warpsmith: interrupted")
