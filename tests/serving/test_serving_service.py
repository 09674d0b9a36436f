"""The service for real: Ray Serve, vLLM with a tiny random policy, the judge. One server for all tests of this file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("serve")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        *(WARPSMITH, "serve", "--port", str(port), f"run.folder={folder}", "model.path=tiny-random"),
        *("rollout.max_tokens=16", "rollout.group_size=2", "judge.pairs=3", "judge.calls=4", "evaluators.actors=1"),
    ]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=os.environ | {"RAY_TMPDIR": "/tmp"}
        )
    family: list[psutil.Process] = []
    try:
        end = time.monotonic() + 240
        while "serving on" not in log.read_text():
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
        yield Server(process, f"http://127.0.0.1:{port}", port, folder / "optimize" / "archive.db", log)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
        for one in [*family, process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


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


def test_a_second_server_on_the_port_says_so_in_one_line(server: Server) -> None:
    done = subprocess.run(
        [WARPSMITH, "serve", "--port", str(server.port)], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == f"warpsmith: port {server.port} on 127.0.0.1: Address already in use: choose another with --port"


def test_ctrl_c_ends_it_and_leaves_nothing(server: Server) -> None:
    """The last test: it ends the server of this file."""
    family = psutil.Process(server.process.pid).children(recursive=True)
    assert len(family) > 5
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=60) == 130
    assert not psutil.wait_procs(family, timeout=10)[1]
    log = server.log.read_text()
    assert "Traceback" not in log
    assert log.splitlines()[-1].startswith("warpsmith: interrupted")
