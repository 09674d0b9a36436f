"""Rejection sampling: real endpoints over HTTP that answer from a list, the real judge, the real learner."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from actors.types import JudgeJob, JudgeResult
from archive.store import Archive
from cluster.config import Config, load_config
from cluster.driver import Mode, Opener
from cluster.errors import ConfigError
from cluster.recording import read_recording
from cluster.session import Session
from search.operators import expert_completion
from tasks.experts import expert_kernels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC and SPEC.loader
SPEC.loader.exec_module(helper := importlib.util.module_from_spec(SPEC))
GOOD = [expert_completion(kernel.code, "By memory.") for kernel in expert_kernels("gelu")]
OTHER = expert_completion(f"{expert_kernels('gelu')[0].code}MARK = 1\n", "By memory.")
WRONG = expert_completion(expert_kernels("gelu")[1].code.replace("0.5f", "0.6f"), "By memory.")


@dataclass
class Server:
    """Each model's answers in order, the last one for ever; a number is a status with which the call fails."""

    answers: dict[str, list[str | int]]
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def asked(self, model: str) -> int:
        return sum(request["model"] == model for request in self.requests)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    running: list[uvicorn.Server] = []

    def start(**answers: list[str | int]) -> Server:
        state, app = Server(answers), FastAPI()

        @app.get("/v1/models")
        def models() -> Any:
            return {"data": [{"id": name} for name in answers]}

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> Any:
            body = await request.json()
            state.requests.append(body)
            left = answers[body["model"]]
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, int):
                return JSONResponse({"error": {"message": "not now"}}, status_code=answer)
            message = {"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            return {"choices": [message], "usage": {"prompt_tokens": 1000, "completion_tokens": 500}}

        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
        running.append(server)
        end = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.02)
        state.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        return state

    yield start
    for server in running:
        server.should_exit = True


class RealJudge:
    """The judge in this process."""

    def __init__(self, judge: Any) -> None:
        self._judge = judge

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            yield JudgeResult(job=job, verdict=self._judge.judge(job.task, job.candidate))


def judged() -> Opener:
    @contextmanager
    def opener(config: Config, model_dir: Path, work_dir: Path, on_event: Any) -> Iterator[Session]:
        from judge.api import Judge

        with helper.scripted([])(config, model_dir, work_dir, on_event) as session, Judge(config.judge) as judge:
            yield replace(session, evaluators=RealJudge(judge))

    return opener


def config_in(folder: Path, server: Server, *overrides: str, **model: Any) -> Config:
    models = [
        {"name": name, "base_url": server.url, "concurrency": 1, "backoff": 0.01, **model} for name in server.answers
    ]
    inline = ", ".join("{" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in one.items()) + "}" for one in models)
    more = (
        'tasks.names=["gelu"]',
        "run.steps=0",
        "run.tasks_per_step=1",
        "run.sft_epochs=0",
        "self_supervised.rounds=0",
        "judge.pairs=3",
        "judge.calls=4",
        "sft.wave=2",
        f"sft.models=[{inline}]",
    )
    return load_config(None, [*helper.overrides_in(folder), *more, *overrides])


def test_models_are_asked_until_enough_is_correct_and_what_is_kept_is_learned_from(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(alpha=[429, "I cannot.", WRONG, 500, GOOD[0], GOOD[0], OTHER, "never asked"], beta=[WRONG])
    config = config_in(tmp_path, server, "sft.policy=true", "sft.kept=2", api_key_env="NO_SUCH_KEY", prompt_usd=1.0)
    said = helper.train(config, opener=judged())
    folder = tmp_path / "cpu"

    # alpha: waves of 2 until two distinct kernels are correct: 6 answers and 2 failed calls; beta: 20 and no more
    assert server.asked("alpha") == 8
    assert server.asked("beta") == 20
    groups = read_recording(folder).step_groups("sft", 0)
    answers = {name: [a for g in groups if g.prompt.model == name for a in g.answers] for name in server.answers}
    statuses = [answer.status for answer in answers["alpha"]]
    assert statuses[:2] == ["unparsed", "incorrect"]
    assert all(status in ("correct", "win") for status in statuses[2:5])
    assert {answer.status for answer in answers["beta"]} == {"incorrect"}
    policy = [a for g in groups if g.prompt.model == "policy" for a in g.answers]
    assert 2 <= len(policy) <= 20

    with_archive = Archive(f"sqlite:///{folder / 'archive.db'}")
    assert with_archive.count(source="alpha") == 6
    assert with_archive.count(source="beta") == 20
    assert with_archive.count(source="policy") == len(policy)
    with_archive.close()

    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    # at most two of each model: beta gave none
    assert line["stage"] == "sft"
    assert 2 <= line["learner"]["samples"] <= 4
    assert "kernels kept of" in said
    calls = [json.loads(text) for text in (folder / "calls.jsonl").read_text().splitlines()]
    assert sum(call["outcome"] == "ok" for call in calls) == 26
    assert sum(call["usd"] for call in calls) == pytest.approx(26 * 1000 / 1e6)

    # Going on asks for nothing again, and a replay needs no endpoint.
    before, asked = helper.batches(folder), len(server.requests)
    helper.train(
        config_in(
            tmp_path, server, "sft.policy=true", "sft.kept=2", "run.steps=1", api_key_env="NO_SUCH_KEY", prompt_usd=1.0
        ),
        opener=judged(),
    )
    assert len(server.requests) == asked
    assert {k: v for k, v in helper.batches(folder).items() if k[0] == "sft"} == before
    helper.train(config, mode=Mode(kind="replay", recording=folder))
    assert helper.batches(tmp_path / "cpu-replay") == before
    helper.train(config, mode=Mode(kind="learn-only", recording=folder))
    assert {k: v for k, v in helper.batches(tmp_path / "cpu-learn-only").items() if k[0] == "sft"} == before
    assert len(server.requests) == asked


def test_an_answer_that_never_came_is_no_ones_fault_and_a_kill_loses_none_that_came(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(alpha=[GOOD[0], 500])
    config = config_in(tmp_path, server, "sft.attempts=4", "sft.kept=2", tries=2)
    said = helper.train(config, opener=judged())
    assert "alpha gave no answer in 2 tries: 500" in said
    assert server.asked("alpha") == 1 + 3 * 2
    groups = read_recording(tmp_path / "cpu").step_groups("sft", 0)
    assert [group.answers[0].status for group in groups].count("judge_error") == 3
    # as if killed after the first wave's answers had come and before they were judged
    other = tmp_path / "other"
    (other / "cpu").mkdir(parents=True)
    lines = (tmp_path / "cpu" / "answers.jsonl").read_text().splitlines(keepends=True)
    (other / "cpu" / "answers.jsonl").write_text(lines[0] + lines[1] + lines[2][: len(lines[2]) // 2])
    server.requests.clear()
    helper.train(config_in(other, server, "sft.attempts=4", "sft.kept=2", tries=2), opener=judged())
    assert server.asked("alpha") == 2 * 2


def test_the_budget_ends_the_asking(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(alpha=["I cannot."])
    config = config_in(tmp_path, server, "sft.budget_usd=0.0035", prompt_usd=1.0, max_tokens=16)
    said = helper.train(config, opener=judged())
    assert server.asked("alpha") == 4
    assert "the budget is spent" in said


def test_names_of_models_differ(serve: Callable[..., Server], tmp_path: Path) -> None:
    one = '{name = "a"}'
    for models in (f"[{one}, {one}]", '[{name = "policy"}]'):
        with pytest.raises(ConfigError, match=r"the names of sft\.models must differ") as error:
            load_config(None, [f"sft.models={models}"])
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"sft\.models\.0\.urls"):
        load_config(None, ['sft.models=[{name = "a", urls = "b"}]'])
