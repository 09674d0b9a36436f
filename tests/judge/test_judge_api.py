"""The judge as a whole: verdicts on honest and failing candidates, clear words, nothing left behind."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from judge.api import Judge
from judge.doctor import isolation_layers
from judge.errors import JudgeError, SandboxError
from judge.jail import LAYERS, REQUIRED
from judge.player import Player
from judge.settings import JudgeSettings
from judge.types import Candidate, Status, Verdict
from tasks.errors import TaskError
from tasks.loader import load_task, parse_task

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "fused_gelu"
QUICK = JudgeSettings(pairs=3, calls=4, warmup_calls=1, call_seconds=3, load_seconds=6)
TASK = """
import torch
SCALE = 2.0
N = 4096
VARIANTS = {"odd": {"N": 33}}
HELD_OUT = ("odd",)
class Model(torch.nn.Module):
    def __init__(self, scale, shape):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(shape))
        self.register_buffer("offset", torch.randn(3).sum())
        self.scale = scale
    def forward(self, x, index, power):
        return (x * self.scale + self.offset) ** power + self.weight.sum(), index + 1, x > 0
def get_inputs():
    return [torch.randn(N), torch.arange(N), 2]
def get_init_inputs():
    return [SCALE, (3, 4)]
"""
CANDIDATE = """
import torch, warpsmith
kernel = warpsmith.load_cpp('extern "C" void f(float* y) { y[0] += 0; }')
class ModelNew(torch.nn.Module):
    def __init__(self, scale, shape):
        super().__init__()
        assert isinstance(shape, tuple)
        self.weight = torch.nn.Parameter(torch.zeros(shape))
        self.register_buffer("{buffer}", torch.zeros(()))
        self.scale = scale
    def forward(self, x, index, power):
        y = (x * self.scale + self.{buffer}) ** power + self.weight.sum()
        kernel.f(y)
        return y, index + 1, x > 0
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(QUICK) as one:
        yield one


def example(name: str) -> Candidate:
    return Candidate(code=(EXAMPLE / f"{name}.py").read_text())


def test_the_examples_get_the_verdicts_they_are_there_for() -> None:
    task = load_task(EXAMPLE / "task.py")
    with Judge() as judge:
        fast, slow = judge.judge(task, example("fast")), judge.judge(task, example("slow"))
        wrong, cheat = judge.judge(task, example("wrong")), judge.judge(task, example("cheat"))
    assert fast.is_correct
    assert fast.speedup is not None
    assert fast.speedup > 1
    assert slow.status is Status.CORRECT
    assert wrong.status is Status.INCORRECT
    assert cheat.status is Status.INCORRECT
    assert fast.speedup_low is not None
    assert fast.speedup_high is not None
    assert fast.speedup_low <= fast.speedup <= fast.speedup_high
    assert fast.best_baseline == "eager"
    assert fast.baselines.eager
    assert fast.max_error is not None
    assert fast.tolerance is not None
    assert fast.max_error <= fast.tolerance
    assert {"compile", "load", "verify", "time"} <= fast.phase_seconds.keys()
    assert Verdict.model_validate_json(fast.model_dump_json()) == fast
    assert json.loads(fast.model_dump_json())["status"] in ("win", "correct")


@pytest.mark.parametrize("buffer", ["offset", "renamed"])
def test_parameters_integers_tuples_and_plain_numbers_reach_the_candidate(judge: Judge, buffer: str) -> None:
    """By name, and by order and shape where the names differ."""
    verdict = judge.judge(parse_task(TASK), Candidate(code=CANDIDATE.replace("{buffer}", buffer)))
    assert verdict.is_correct, verdict.message


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("def (", Status.COMPILE_ERROR, "line 1: not Python"),
        ("x = 1", Status.RUNTIME_ERROR, "no class ModelNew"),
        ("\n\nimport nothing_there", Status.RUNTIME_ERROR, "candidate line 3: ModuleNotFoundError"),
        (
            "import warpsmith\nwarpsmith.load_cpp('extern \"C\" void f() { x; }')",
            Status.COMPILE_ERROR,
            "kernel: line 1:",
        ),
        (
            "import torch\nclass ModelNew(torch.nn.Module):\n def __init__(self): pass",
            Status.RUNTIME_ERROR,
            "TypeError",
        ),
        ("import os; os.abort()", Status.RUNTIME_ERROR, "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", Status.RUNTIME_ERROR, "SIGSEGV"),
    ],
)
def test_a_failing_candidate_is_told_where_and_why_in_one_line(
    judge: Judge, code: str, status: Status, words: str
) -> None:
    verdict = judge.judge(parse_task(TASK), Candidate(code=code))
    assert verdict.status is status, verdict.message
    assert words in verdict.message
    assert "\n" not in verdict.message
    assert verdict.score == 0
    assert set(verdict.sandbox) <= set(LAYERS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("import torch\n", "import torch\nimport not_there\n"), "task.py:3: the reference fails in importing it"),
        (("torch.arange(N), 2]", "torch.arange(N)]"), "the reference fails in get_inputs() or forward"),
        (("return [SCALE, (3, 4)]", "return [print]"), "get_init_inputs() or Model"),
        (("return [SCALE, (3, 4)]", "raise SystemExit"), "get_init_inputs() or Model"),
    ],
)
def test_a_task_whose_own_code_fails_is_a_task_error_in_one_line(
    judge: Judge, change: tuple[str, str], words: str
) -> None:
    candidate = Candidate(code=CANDIDATE.replace("{buffer}", "offset"))
    with pytest.raises(TaskError) as error:
        judge.judge(parse_task(TASK.replace(*change), "task.py"), candidate)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_reference_as_its_own_candidate_is_correct_and_no_win(judge: Judge) -> None:
    source = (EXAMPLE / "task.py").read_text()
    verdict = judge.judge(
        load_task(EXAMPLE / "task.py"), Candidate(code=source.replace("class Model(", "class ModelNew("))
    )
    assert verdict.status is Status.CORRECT
    assert "no custom kernel" in verdict.flags


def test_thirty_verdicts_leave_no_process_file_or_memory_behind(judge: Judge) -> None:
    me = psutil.Process()
    task = parse_task(TASK)
    codes = [CANDIDATE.replace("{buffer}", "offset"), "import os; os._exit(3)", "x = ["]

    def state() -> tuple[int, int, int]:
        gc.collect()  # what earlier tests left to it
        return me.num_fds(), len(me.children(recursive=True)), len(list((judge._zygote.folder / "build").iterdir()))

    for code in codes:
        judge.judge(task, Candidate(code=code))
    before = state()
    for number in range(30):
        judge.judge(task, Candidate(code=codes[number % 3] + f"\n# {number}"))
    assert all(after <= first for after, first in zip(state(), before, strict=True)), (before, state())
    maps = Path("/proc/self/maps").read_text().count("warpsmith-inputs")
    assert maps == 0


def test_a_killed_judge_takes_everything_with_it(tmp_path: Path) -> None:
    script = tmp_path / "judge_and_hang.py"
    script.write_text(
        "from judge.api import Judge\nfrom judge.types import Candidate\nfrom judge.settings import JudgeSettings\n"
        f"from tasks.loader import load_task\ntask = load_task({str(EXAMPLE / 'task.py')!r})\n"
        "with Judge(JudgeSettings(load_seconds=60)) as judge:\n    print('ready', flush=True)\n"
        "    judge.judge(task, Candidate(code='while True: pass'))\n"
    )
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.5)
    ours = psutil.Process(process.pid).children(recursive=True)
    assert len(ours) == 2  # the zygote and the candidate
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not psutil.wait_procs(ours, timeout=5)[1]


def test_nothing_cools_the_caches_between_the_two_calls_of_a_pair(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying and checking the candidate's outputs between the calls once made eager 5 to 9% faster than itself."""
    events: list[str] = []
    call, outputs = Player.call, Player.outputs
    monkeypatch.setattr(Player, "call", lambda self, case: (events.append("call"), call(self, case))[1])
    monkeypatch.setattr(Player, "outputs", lambda self: (events.append("outputs"), outputs(self))[1])
    verdict = judge.judge(parse_task(TASK), Candidate(code=CANDIDATE.replace("{buffer}", "offset")))
    assert verdict.is_correct, verdict.message
    verified = 2 * 5  # variants, times distributions and the repeat
    timed = events[2 * verified :]
    assert len(timed) >= 3 * 3 * (1 + 4)
    assert timed == ["call", "call", "outputs"] * (len(timed) // 3)


def test_a_zygote_that_dies_is_replaced(judge: Judge) -> None:
    assert judge._zygote._process is not None
    judge._zygote._process.kill()
    judge._zygote._process.wait()
    verdict = judge.judge(parse_task(TASK), Candidate(code=CANDIDATE.replace("{buffer}", "offset")))
    assert verdict.is_correct, verdict.message


def test_a_judge_that_cannot_start_processes_says_so_and_recovers(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, candidate = parse_task(TASK), Candidate(code=CANDIDATE.replace("{buffer}", "offset"))
    assert judge._zygote._process is not None
    judge._zygote._process.kill()
    judge._zygote._process.wait()
    with monkeypatch.context() as broken:
        broken.setattr("judge.process._BOOT", "raise SystemExit('no zygote today')")
        verdict = judge.judge(task, candidate)
    assert verdict.status is Status.JUDGE_ERROR
    assert "\n" not in verdict.message
    assert judge.judge(task, candidate).is_correct


def test_what_this_machine_offers_is_said_and_insisted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = isolation_layers()
    assert list(layers) == list(LAYERS)
    strict = QUICK.model_copy(update={"require_sandbox": True})
    task, candidate = parse_task(TASK), Candidate(code=CANDIDATE.replace("{buffer}", "offset"))
    with Judge(strict) as judge:
        if all(layers[layer] == "active" for layer in REQUIRED):
            assert judge.judge(task, candidate).is_correct
        else:
            with pytest.raises(SandboxError):
                judge.judge(task, candidate)
    monkeypatch.setattr("judge.process.REQUIRED", (*REQUIRED, "moat"))
    with Judge(strict) as judge, pytest.raises(SandboxError, match="moat"):
        judge.judge(task, candidate)


def test_judging_on_a_gpu_without_cupy_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # as if it were not installed
    with pytest.raises(JudgeError, match=r"needs CuPy: pip install .* or judge on the CPU"):
        Judge(JudgeSettings(device="cuda"))


def test_without_timing_right_is_correct_and_wrong_is_incorrect() -> None:
    task = load_task(str(EXAMPLE / "task.py"))
    with Judge(QUICK.model_copy(update={"timed": False})) as judge:
        fast, wrong = (
            judge.judge(task, Candidate(code=(EXAMPLE / name).read_text())) for name in ("fast.py", "wrong.py")
        )
    assert (fast.status, fast.speedup) == (Status.CORRECT, None)
    assert "not timed" in fast.message
    assert not {"time", "recheck"} & fast.phase_seconds.keys()
    assert wrong.status is Status.INCORRECT
