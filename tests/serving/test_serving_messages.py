"""Requests: what is taken, what is refused and in which words; answers: never an unverified kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archive.types import Record
from judge.types import Status, Verdict
from serving.messages import RequestError, parse_request, reply_of
from serving.optimizer import OptimizeResult
from serving.settings import ServingSettings
from tasks.loader import suite_task

SETTINGS = ServingSettings(max_candidates=16, budget_seconds=600)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_limits_are_filled_in_from_the_settings() -> None:
    request = parse_request(body(task_name="softmax"), SETTINGS)
    assert (request.max_candidates, request.budget_seconds) == (16, 600)
    request = parse_request(body(task_source="x", max_candidates=2, budget_seconds=1.5), SETTINGS)
    assert (request.max_candidates, request.budget_seconds) == (2, 1.5)


@pytest.mark.parametrize(
    ("raw", "status", "words"),
    [
        (b"", 400, "the body is not JSON"),
        (b"{", 400, "the body is not JSON"),
        (b"\xff", 400, "the body is not JSON"),
        (b"[]", 422, "object"),
        (body(), 422, "give either task_source or task_name"),
        (body(task_name="a", task_source="b"), 422, "give either task_source or task_name"),
        (body(task="a"), 422, "task: Extra inputs are not permitted; known are task_source, task_name"),
        (body(task_name=3), 422, "task_name: Input should be a valid string"),
        (body(task_name="a", max_candidates=0), 422, "max_candidates: Input should be greater than or equal to 1"),
        (body(task_name="a", max_candidates=17), 422, "max_candidates: at most 16 on this server, got 17"),
        (body(task_name="a", budget_seconds=601), 422, "budget_seconds: at most 600 on this server, got 601"),
        (b'{"task_name": "a", "budget_seconds": Infinity}', 422, "budget_seconds"),
    ],
)
def test_a_bad_request_is_one_line_with_its_status(raw: bytes, status: int, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(raw, SETTINGS)
    assert caught.value.status == status
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def record(verdict: Verdict) -> Record:
    return Record(
        run_id="r", task_name="softmax", task_id="t", source="policy", operator="confirm", code="code", verdict=verdict
    )


def result(best: Record | None, best_correct: Record | None = None) -> OptimizeResult:
    return OptimizeResult(
        task=suite_task("softmax"),
        best=best,
        best_correct=best_correct,
        asked=4,
        judged=3,
        statuses={"win": 1},
        seconds=1.234,
        stopped_by="candidates",
    )


def test_a_win_comes_with_its_code_interval_and_record() -> None:
    win = record(Verdict(status=Status.WIN, speedup=1.5, speedup_low=1.4, speedup_high=1.6, best_baseline="eager"))
    reply = reply_of(result(win))
    assert (reply.status, reply.code, reply.record_id, reply.source) == ("win", "code", win.record_id, "policy")
    assert (reply.speedup, reply.speedup_low, reply.speedup_high) == (1.5, 1.4, 1.6)
    assert (reply.asked, reply.judged, reply.seconds) == (4, 3, 1.23)


def test_without_a_win_no_code_is_returned() -> None:
    slow = record(Verdict(status=Status.CORRECT, speedup=0.9, speedup_low=0.8, speedup_high=1.0))
    reply = reply_of(result(None, slow))
    assert reply.status == "none"
    assert reply.code is None
    assert reply.record_id is None
    assert reply.message == "no candidate was verified faster; the best correct one: 0.90x"
    assert "none was correct" in reply_of(result(None)).message


def test_the_service_file_names_a_builder_that_exists_and_a_config_that_loads() -> None:
    import importlib

    import yaml

    from cluster.config import load_config

    root = Path(__file__).parents[2]
    (application,) = yaml.safe_load((root / "configs" / "serve.yaml").read_text())["applications"]
    module, name = application["import_path"].split(":")
    assert callable(getattr(importlib.import_module(module), name))
    load_config(root / application["args"]["config"], application["args"]["overrides"])
