"""The front: jobs over HTTP, keys and limits, what is logged and what is not, the pages."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from archive.store import Archive
from serving.api import build_api
from serving.job_types import JobState
from serving.keys import ApiKey, ApiKeyError, KeyStore, Limiter
from serving.settings import ServingSettings

Start = Callable[..., Any]
SOFTMAX = {"task_name": "softmax", "max_candidates": 2}
RESULT = {
    "status": "win", "task_name": "softmax", "code": "CODE", "speedup": 1.5, "speedup_low": 1.4,
    "speedup_high": 1.6, "best_baseline": "eager", "record_id": "r", "source": "policy", "asked": 2, "judged": 2,
    "statuses": {"win": 1}, "seconds": 1.0, "message": "",
}  # fmt: skip


def frames(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events, read by their specification."""
    event: dict[str, Any] = {}
    for line in lines:
        if line == "" and event:
            yield event
            event = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value


# -- jobs ----------------------------------------------------------------------------------------------------------


def test_a_job_is_202_with_its_place_and_can_be_looked_at(start_front: Start) -> None:
    front = start_front()
    answer = front.call("POST", "/v1/optimize", json=SOFTMAX)
    assert answer.status_code == 202
    job = answer.json()
    assert (job["state"], job["task_name"], job["max_candidates"], job["budget_seconds"]) == (
        "queued",
        "softmax",
        2,
        600,
    )
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert front.call("GET", answer.headers["location"]).json() == job
    assert front.call("GET", "/v1/jobs").json() == [job]
    assert front.call("GET", "/v1/jobs/unknown").status_code == 404


def test_events_come_as_they_happen_and_a_client_can_come_back(start_front: Start) -> None:
    import httpx

    front = start_front()
    job_id = front.call("POST", "/v1/optimize", json=SOFTMAX).json()["id"]
    steps = iter(
        [
            lambda: front.store.claim("w"),
            lambda: front.store.add_event(job_id, "w", "verdict", {"status": "correct", "message": "a\nb"}),
            lambda: front.store.add_event(job_id, "w", "verdict", {"status": "win"}),
            lambda: front.store.finish(job_id, "w", JobState.DONE, result=RESULT),
        ]
    )
    seen = []
    with httpx.stream("GET", f"{front.url}/v1/jobs/{job_id}/events", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for frame in frames(stream.iter_lines()):
            seen.append(frame)
            next(steps, lambda: None)()  # the next thing happens only after this was heard of
    assert [frame["event"] for frame in seen] == ["queued", "running", "verdict", "verdict", "done"]
    assert seen[2]["data"] == {"job": job_id, "status": "correct", "message": "a\nb"}
    assert seen[-1]["data"]["result"] == RESULT
    assert front.call("GET", f"/v1/jobs/{job_id}").json()["result"] == RESULT
    again = front.call("GET", f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": seen[2]["id"]})
    assert [frame["event"] for frame in frames(iter(again.text.split("\n")))] == ["verdict", "done"]
    assert front.call("GET", f"/v1/jobs/{job_id}/events?after={seen[-1]['id']}").text == ""


def test_waiting_gives_the_result_or_the_error_itself(start_front: Start) -> None:
    front = start_front()

    def work() -> None:
        for end in (
            {"state": JobState.DONE, "result": RESULT},
            {"state": JobState.FAILED, "error": "the task's get_inputs fails", "error_status": 422},
        ):
            while (job := front.store.claim("w")) is None:
                time.sleep(0.02)
            front.store.finish(job.job_id, "w", **end)

    thread = threading.Thread(target=work)
    thread.start()
    done = front.call("POST", "/v1/optimize?wait=true", json=SOFTMAX)
    failed = front.call("POST", "/v1/optimize?wait=true", json=SOFTMAX)
    thread.join()
    assert (done.status_code, done.json()) == (200, RESULT)
    assert (failed.status_code, failed.json()) == (422, {"error": "the task's get_inputs fails"})


def test_who_waits_and_goes_away_takes_the_job_along(start_front: Start) -> None:
    import httpx

    front = start_front()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{front.url}/v1/optimize?wait=true", json=SOFTMAX, timeout=0.5)
    end = time.monotonic() + 10
    while front.store.counts()["cancelled"] == 0 and time.monotonic() < end:
        time.sleep(0.05)
    assert front.store.counts()["cancelled"] == 1


def test_cancelling_over_http(start_front: Start) -> None:
    front = start_front()
    job_id = front.call("POST", "/v1/optimize", json=SOFTMAX).json()["id"]
    assert front.call("DELETE", f"/v1/jobs/{job_id}").json()["state"] == "cancelled"
    assert front.call("DELETE", "/v1/jobs/unknown").status_code == 404


def test_a_full_queue_is_503_with_retry_after(start_front: Start) -> None:
    front = start_front(max_queued=1)
    assert front.call("POST", "/v1/optimize", json=SOFTMAX).status_code == 202
    full = front.call("POST", "/v1/optimize", json=SOFTMAX)
    assert full.status_code == 503
    assert int(full.headers["retry-after"]) > 0
    assert "1 jobs are waiting" in full.json()["error"]


def test_jobs_are_there_after_a_restart(start_front: Start) -> None:
    first = start_front()
    job_id = first.call("POST", "/v1/optimize", json=SOFTMAX).json()["id"]
    second = start_front()  # another front on the same database
    assert second.call("GET", f"/v1/jobs/{job_id}").json()["state"] == "queued"


def test_the_judge_answers_and_its_queue_is_bounded(start_front: Start) -> None:
    front = start_front(max_judging=1)
    body = {"task_name": "softmax", "code": "class ModelNew: pass"}
    assert front.call("POST", "/v1/judge", json=body).json() == {"status": "correct", "message": body["code"]}
    assert front.call("POST", "/v1/judge", json={"code": "x"}).status_code == 422
    front.backend.pause = 0.5
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(front.call("POST", "/v1/judge", json=body).status_code))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 503, 503]


# -- keys and limits -------------------------------------------------------------------------------------------------


def test_without_a_key_made_the_service_of_this_machine_is_open(start_front: Start) -> None:
    assert start_front().call("GET", "/v1/jobs").status_code == 200


@pytest.mark.parametrize("settings", [{"host": "0.0.0.0"}, {"require_key": "always"}])
def test_a_service_for_others_never_is(start_front: Start, settings: Any) -> None:
    front = start_front(**settings)
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/optimize"), ("POST", "/v1/chat/completions")):
        answer = front.call(method, path, json={} if method == "POST" else None)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert front.call("GET", "/healthz").status_code == 200


def test_a_caller_from_another_machine_needs_a_key_wherever_the_service_listens(tmp_path: Path, backend: Any) -> None:
    import httpx

    archive = Archive(str(tmp_path / "archive.db"))
    app = build_api(backend, ServingSettings(), archive, model_name="tiny")

    async def status(address: str) -> int:
        transport = httpx.ASGITransport(app=app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            return (await http.get("/v1/jobs")).status_code

    assert asyncio.run(status("127.0.0.1")) == 200
    assert asyncio.run(status("192.0.2.7")) == 401
    archive.close()


def test_keys_open_what_their_scopes_say(start_front: Start) -> None:
    front = start_front()
    _, optimize = front.keys.create("a", scopes=["optimize"])
    _, complete = front.keys.create("b", scopes=["complete"])
    _, admin = front.keys.create("c", scopes=["admin"])
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}
    assert front.call("GET", "/v1/jobs").status_code == 401
    assert front.call("GET", "/v1/jobs", key="wsk_wrong").status_code == 401
    assert front.call("GET", "/v1/jobs", key=optimize).status_code == 200
    assert front.call("GET", "/v1/jobs", key=complete).status_code == 403
    assert front.call("POST", "/v1/chat/completions", key=optimize, json=chat).status_code == 403
    assert front.call("POST", "/v1/chat/completions", key=complete, json=chat).status_code == 200
    assert front.call("POST", "/v1/judge", key=complete, json={}).status_code == 403
    assert front.call("PUT", "/v1/weights", key=optimize, json={}).status_code == 403
    assert front.call("PUT", "/v1/weights", key=admin, json={}).status_code == 422


def test_a_job_is_its_owners_and_the_admins(start_front: Start) -> None:
    front = start_front()
    _, mine = front.keys.create("a", scopes=["optimize"])
    _, other = front.keys.create("b", scopes=["optimize"])
    _, admin = front.keys.create("c", scopes=["admin"])
    path = front.call("POST", "/v1/optimize", key=mine, json=SOFTMAX).headers["location"]
    for route in (path, f"{path}/events"):
        assert front.call("GET", route, key=other).status_code == 404
    assert front.call("DELETE", path, key=other).status_code == 404
    assert front.call("GET", "/v1/jobs", key=other).json() == []
    assert front.call("GET", path, key=admin).status_code == 200
    assert front.call("DELETE", path, key=mine).json()["state"] == "cancelled"


def test_a_revoked_key_is_refused_and_revoking_the_last_opens_nothing(start_front: Start) -> None:
    front = start_front()
    key, _ = front.keys.create("a", scopes=["admin"])
    front.keys.revoke(key.key_id)
    assert front.call("GET", "/v1/jobs").status_code == 401
    with pytest.raises(ApiKeyError, match="no such key, or revoked"):
        front.keys.revoke(key.key_id)


def test_a_keys_rate_and_number_at_once_are_429(start_front: Start) -> None:
    front = start_front()
    _, slow = front.keys.create("a", scopes=["optimize"], requests_per_minute=3)
    statuses = [front.call("GET", "/v1/jobs", key=slow).status_code for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    refused = front.call("GET", "/v1/jobs", key=slow)
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    _, narrow = front.keys.create("b", scopes=["optimize"], concurrent=1)
    assert front.call("POST", "/v1/optimize", key=narrow, json=SOFTMAX).status_code == 202
    assert front.call("POST", "/v1/optimize", key=narrow, json=SOFTMAX).status_code == 429


def test_the_bucket_fills_evenly() -> None:
    now = 100.0
    limiter = Limiter(clock=lambda: now)
    key = ApiKey(key_id="k", name="", scopes=("judge",), requests_per_minute=60, concurrent=2, created_at=0)
    for _ in range(60):
        assert limiter.enter(key) == 0
        limiter.leave(key)
    assert limiter.enter(key) == pytest.approx(1.0)  # 60 a minute: one a second
    now += 0.5
    assert limiter.enter(key) == pytest.approx(0.5)
    now += 2.0
    assert [limiter.enter(key), limiter.enter(key)] == [0, 0]
    assert limiter.enter(key) > 0  # two are inside
    limiter.leave(key)
    now += 5.0
    assert limiter.enter(key) == 0


def test_the_database_holds_no_key(start_front: Start) -> None:
    front = start_front()
    key, secret = front.keys.create("a", scopes=["admin"])
    front.call("GET", "/v1/jobs", key=secret)
    front.archive.close()
    files = list(front.log.parent.rglob("*"))
    assert any("archive.db" in file.name for file in files)
    for file in files:
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file
    assert KeyStore(front.archive).find(secret) == key


def test_an_unknown_scope_is_an_error(start_front: Start) -> None:
    with pytest.raises(ApiKeyError, match="unknown scope everything: known are"):
        start_front().keys.create("a", scopes=["everything"])


# -- the gate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/optimize", "/v1/judge", "/v1/chat/completions"])
def test_a_long_body_is_413_whatever_its_header_says(start_front: Start, path: str) -> None:
    front = start_front(max_body_bytes=2000)
    assert front.call("POST", path, content=b"x" * 2001).status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(30):
            yield b"x" * 100

    assert front.call("POST", path, content=chunks()).status_code == 413


def test_every_answer_names_its_request_and_a_sane_name_is_kept(start_front: Start) -> None:
    front = start_front()
    assert front.call("GET", "/v1/jobs", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    for bad in ("a b", "x" * 65, 'x"},{"'):
        given = front.call("GET", "/nothing", headers={"X-Request-ID": bad}).headers["x-request-id"]
        assert len(given) == 32


def test_the_log_has_a_line_a_request_and_no_secret_nor_content(start_front: Start) -> None:
    front = start_front()
    key, secret = front.keys.create("a", scopes=["admin"])
    source = "import torch\n# private words\n"
    front.call("POST", "/v1/optimize?token=hidden", key=secret, json={"task_source": source})
    front.call("GET", "/v1/jobs/private-job", key=secret)
    front.call("GET", "/some/secret/path")
    deadline = time.monotonic() + 10  # the last line may be written after its answer has been read
    while len((text := front.log.read_text()).splitlines()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("POST", "/v1/optimize", 422),
        ("GET", "/v1/jobs/{job_id}", 404),
        ("GET", "other", 401),
    ]
    assert [line["key"] for line in lines] == [key.key_id, key.key_id, ""]
    for hidden in (secret, "private words", "hidden", "private-job", "secret/path"):
        assert hidden not in text


def test_cors_is_off_unless_an_origin_is_named(start_front: Start) -> None:
    headers = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in start_front().call("GET", "/v1/jobs", headers=headers).headers
    open_to = start_front(cors_origins=("https://page.example",))
    answer = open_to.call("OPTIONS", "/v1/optimize", headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    other = open_to.call("GET", "/v1/jobs", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


def test_metrics_are_prometheus_text_with_bounded_labels(start_front: Start) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    front = start_front()
    front.call("POST", "/v1/optimize", json=SOFTMAX)
    for number in range(5):
        front.call("GET", f"/v1/jobs/{number}")
        front.call("GET", f"/x{number}")
    answer = front.call("GET", "/metrics")
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    requests = ("warpsmith_requests_total", ("method", "GET"))
    assert samples[(*requests, ("route", "/v1/jobs/{job_id}"), ("status", "404"))] == 5
    assert samples[(*requests, ("route", "other"), ("status", "404"))] == 5
    assert samples[("warpsmith_jobs", ("state", "queued"))] == 1


def test_health_is_503_while_a_deployment_is_down(start_front: Start) -> None:
    front = start_front()
    assert front.call("GET", "/healthz").json()["status"] == "ok"
    front.backend.down = True
    down = front.call("GET", "/healthz")
    assert (down.status_code, down.json()["status"]) == (503, "down")
    assert "retry-after" in down.headers


def test_the_interface_is_described_for_programs_and_people(start_front: Start) -> None:
    front = start_front()
    schema = front.call("GET", "/openapi.json").json()
    routes = {(method.upper(), path) for path, methods in schema["paths"].items() for method in methods}
    assert routes >= {
        ("POST", "/v1/optimize"),
        ("GET", "/v1/jobs/{job_id}"),
        ("DELETE", "/v1/jobs/{job_id}"),
        ("GET", "/v1/jobs/{job_id}/events"),
        ("POST", "/v1/judge"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/healthz"),
        ("GET", "/metrics"),
    }
    page = front.call("GET", "/docs").text
    for method, path in routes:
        assert f"{method} {path}</code>" in page
    assert "max_candidates" in page
    for path in ("/", "/docs"):
        answer = front.call("GET", path)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "http" not in answer.text.replace("the HTTP interface", "")  # nothing is loaded from elsewhere
