"""`warpsmith optimize`: what it takes, says and writes; and one search for real, with an endpoint that misbehaves."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from actors.spending import Call, Price, Spending
from archive.store import Archive
from archive.types import Record
from cluster.arguments import preset_overrides
from cluster.cli import run
from cluster.config import load_config
from cluster.errors import ConfigError
from cluster.optimize import Order, _check, _place, _price
from cluster.optimize_report import progress_chart, render_search
from cluster.optimize_view import View
from judge.types import Status, Verdict
from search.operators import expert_completion
from search.settings import PRESETS
from serving.optimizer import OptimizeResult
from tasks.errors import TaskError
from tasks.experts import expert_kernels
from tasks.loader import suite_task
from tasks.sources import load_tasks

ROOT = Path(__file__).parents[2]
WARPSMITH = Path(sys.executable).with_name("warpsmith")
TASK = suite_task("softmax")
SOURCE = TASK.source


def record(speedup: float, record_id: str, **changes: object) -> Record:
    win = Verdict(
        status=Status.WIN,
        speedup=speedup,
        speedup_low=speedup * 0.9,
        speedup_high=speedup * 1.1,
        best_baseline="eager",
        sandbox=("landlock", "seccomp"),
    )
    fields: dict[str, object] = {
        "record_id": record_id,
        "run_id": "optimize-1",
        "task_name": TASK.name,
        "task_id": TASK.task_id,
        "source": "m",
        "operator": "edit",
        "code": f"class ModelNew:\n    speed = {speedup}\n",
        "group_id": f"g-{record_id}",
        "verdict": win,
    }
    return Record.model_validate({**fields, **changes})


def result(best: Record | None) -> OptimizeResult:
    return OptimizeResult(
        task=TASK, best=best, best_correct=None, asked=3, judged=3, statuses={}, seconds=5, stopped_by="candidates"
    )


def call(usd: float, outcome: str = "ok") -> Call:
    return Call(
        prompt_id="g-a",
        model="m",
        operator="edit",
        prompt_tokens=10,
        completion_tokens=5,
        usd=usd,
        seconds=1,
        outcome=outcome,
    )


def test_a_folder_is_all_task_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "one.py").write_text(SOURCE)
    (tmp_path / "sub" / "two.py").write_text(SOURCE + "\n# another\n")
    (tmp_path / "setup.py").write_text("print('no task')\n")
    assert [Path(task.path or "").name for task in load_tasks(str(tmp_path))] == ["one.py", "two.py"]
    assert [task.name for task in load_tasks("softmax")] == ["softmax"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="holds no task file"):
        load_tasks(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (Order(models=("openai:m",), budget_usd=1.0), "--price m=IN/OUT"),
        (Order(models=("openai:m", "openai:m")), "named twice"),
        (Order(models=("local", "folder")), "only one local model"),
        (Order(models=("openai:",)), "name the model"),
        (Order(models=("openai:m",), budget_usd=1.0, prices=("m=cheap",)), "IN/OUT"),
    ],
)
def test_orders_that_cannot_be_followed_are_refused_before_anything_starts(order: Order, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        _check(order, [TASK])
    assert "\n" not in str(caught.value)


def test_one_file_cannot_hold_the_kernels_of_two_tasks() -> None:
    with pytest.raises(ConfigError, match="give a folder"):
        _check(Order(out=Path("x.py")), [TASK, TASK])


def test_prices_are_those_of_the_model_or_of_all() -> None:
    assert _price("m", ("1/2", "m=3/4.5", "other=9/9")) == Price(prompt=3, completion=4.5)
    assert _price("n", ("1/2", "m=3/4")) == Price(prompt=1, completion=2)
    assert _price("n", ()) == Price()


def test_resume_takes_the_newest_search_of_the_same_task(tmp_path: Path) -> None:
    lines: list[str] = []
    first = _place(tmp_path, TASK, Order(), lines.append)
    second = _place(tmp_path, TASK, Order(), lines.append)
    os.utime(first / "run.json", (1, 1))
    assert _place(tmp_path, TASK, Order(resume=True), lines.append) == second
    other = suite_task("gelu")
    assert _place(tmp_path, other, Order(resume=True), lines.append).name.startswith("gelu-")
    assert lines[-1] == "nothing of gelu to resume: starting anew"


def test_an_unknown_preset_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", "softmax", "--preset", "magic"]) == 2
    assert "ai-cuda-engineer" in capsys.readouterr().err


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_configuration_and_can_be_overridden(preset: str) -> None:
    overrides = preset_overrides(preset)
    assert load_config(None, overrides).evolution == PRESETS[preset]
    assert load_config(None, [*overrides, "evolution.islands=7"]).evolution.islands == 7


def test_the_view_says_best_verdicts_cost_and_time_left() -> None:
    spending = Spending(budget_usd=2.0)
    spending.add(call(0.5))
    spending.add(call(0.0, "429"))
    view = View(10, 2.0, 600.0, say=lambda text: None, spending=spending)
    view.on_record(record(1.5, "a"), 1)
    view.on_record(record(2.5, "b"), 2)
    view.on_record(record(9.0, "c", operator="confirm"), 2)
    facts = view.facts()
    assert facts["best so far"] == "2.50x [2.25, 2.75] win by m (edit)"
    assert facts["verdicts"] == "3 win"
    assert facts["cost"] == "0.5000 USD of 2, 2 calls, 1 failed and tried again"
    assert "min left" in facts["time"]


def test_the_view_can_be_drawn() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    view = View(10, None, None, say=lambda text: None, task="softmax")
    view.on_record(record(1.5, "a"), 1)
    console.print(view.panel())
    assert "1.50x [1.35, 1.65] win by m (edit)" in console.export_text()


def test_the_report_is_one_page_that_needs_nothing_and_escapes_everything(tmp_path: Path) -> None:
    evil = record(
        1.2, "evil", code="class ModelNew: pass  # <script>alert(1)</script>\n", analysis="<img src=x>", source="<b>"
    )
    child = record(2.0, "child", parents=("evil",), code="class ModelNew:\n    x = '</pre><script>'\n")
    confirmed = child.model_copy(update={"record_id": "again", "operator": "confirm", "parents": ("child",)})
    spending = Spending()
    spending.add(call(0.25))
    page = render_search(TASK, [evil, child, confirmed], spending, result(confirmed), run_id="optimize-1")
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;b&gt;" in page
    assert "default-src 'none'" in page
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert "2.00x" in page
    assert "confirmed on new process pairs" in page
    assert page.index("evil</span>") < page.index("child</span>") < page.index("again</span>")
    assert "landlock, seccomp" in page


def test_an_interrupted_search_has_a_report_that_says_so() -> None:
    page = render_search(TASK, [record(1.5, "a")], None, None, run_id="optimize-1")
    assert "Interrupted; 1 candidates are in the archive" in page
    assert "The fastest correct kernel" in page
    assert "nothing verified faster" in render_search(TASK, [], None, result(None), run_id="r")


def test_the_chart_climbs_where_the_best_does() -> None:
    chart = progress_chart([0.0, 1.0, 0.5, 2.0])
    points = [tuple(map(float, p.split(","))) for p in re.findall(r'points="([^"]*)"', chart)[0].split()]
    assert len(points) == 3  # nothing is drawn before the first correct one
    assert points[0][1] == points[1][1] > points[2][1]
    assert chart.count("<circle") == 3


def reply(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    text = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


@pytest.fixture
def endpoint() -> Iterator[Callable[[list[int]], str]]:
    """An endpoint that answers the given statuses first, then the suite's good squared_relu kernel."""
    servers: list[ThreadingHTTPServer] = []

    def start(statuses: list[int]) -> str:
        code = next(kernel.code for kernel in expert_kernels("squared_relu") if kernel.quality == "good")
        asked: list[int] = []

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                wrong = self.headers["authorization"] != "Bearer right"
                reply(
                    self, 401 if wrong else 200, {"error": {"message": "bad key"}} if wrong else {"data": [{"id": "m"}]}
                )

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                asked.append(1)
                if statuses:
                    return reply(self, statuses.pop(0), {"error": {"message": "later"}})
                text = expert_completion(f"{code}NUMBER = {len(asked)}\nOTHER = 'abc{len(asked)}'\n", "bound by memory")
                choice = {"message": {"content": text}, "finish_reason": "stop"}
                return reply(
                    self, 200, {"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 500}}
                )

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def command(folder: Path, url: str, *arguments: str) -> list[str]:
    quick = [f"run.folder={folder}", "judge.pairs=3", "judge.calls=4", "run.min_free_disk_gb=0"]
    sets = [part for setting in quick for part in ("--set", setting)]
    model = ["--model", "openai:m", "--base-url", url, "--price", "1/2"]
    return [str(WARPSMITH), "optimize", "squared_relu", *model, *arguments, *sets]


def environment(key: str = "right") -> dict[str, str]:
    return os.environ | {"RAY_TMPDIR": "/tmp", "OPENAI_API_KEY": key}


def test_a_wrong_key_ends_the_command_at_once_with_one_line(
    tmp_path: Path, endpoint: Callable[[list[int]], str]
) -> None:
    done = subprocess.run(
        command(tmp_path, endpoint([])), capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment("wrong")
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "OPENAI_API_KEY" in done.stderr
    assert "wrong" not in done.stderr.replace("warpsmith", "")


@pytest.mark.slow
def test_a_search_over_an_endpoint_that_fails_at_first_ends_within_its_budgets(
    tmp_path: Path, endpoint: Callable[[list[int]], str]
) -> None:
    done = subprocess.run(
        command(tmp_path, endpoint([429, 500]), "--budget-usd", "0.007", "--out", str(tmp_path / "k.py")),
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert (done.returncode == 0) == (tmp_path / "k.py").exists()
    (folder,) = (tmp_path / "optimize").glob("squared_relu-*")
    calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    assert sorted(one["outcome"] for one in calls if one["outcome"] != "ok") == ["429", "500"]
    spent = sum(one["usd"] for one in calls)
    assert 0.002 <= spent <= 0.007 + 0.02  # a call costs 0.002; one of full length would cost 0.02
    archive = Archive(str(tmp_path / "optimize" / "archive.db"))
    assert sum(r.source == "m" and r.operator != "confirm" for r in archive.records()) <= len(calls) - 2
    archive.close()
    assert "squared_relu" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_ctrl_c_keeps_all_and_resume_goes_on(tmp_path: Path, endpoint: Callable[[list[int]], str]) -> None:
    url, log = endpoint([]), tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command(tmp_path, url, "--max-candidates", "100"),
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(),
        )
    try:
        end = time.monotonic() + 200
        while not re.search(r"^  \d+/100 m ", log.read_text(), re.MULTILINE):
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    assert "Traceback" not in log.read_text()
    (folder,) = (tmp_path / "optimize").glob("squared_relu-*")
    assert "Interrupted" in (folder / "report.html").read_text()
    answered = len((folder / "answers.jsonl").read_text().splitlines())
    done = subprocess.run(
        command(tmp_path, url, "--max-candidates", str(answered + 1), "--resume", "--out", str(tmp_path / "k.py")),
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert f"resuming {folder.name}" in done.stdout
    archive = Archive(str(tmp_path / "optimize" / "archive.db"))
    logged = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    kept = {record.group_id for record in archive.records()}
    archive.close()
    assert len(logged) <= answered + 1
    not_novel = re.search(r"(\d+) not novel", done.stdout)
    assert sum(one["prompt"]["prompt_id"] not in kept for one in logged) <= int(not_novel[1] if not_novel else 0)
