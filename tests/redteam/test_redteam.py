"""Every way of cheating that we know of, against the real judge: none may win; honest oddities must pass.

    pytest tests/redteam -s        prints the table attack x layer that stopped it

A file's first line says what is expected of it; its second which way of cheating it is (judge/hacks.toml has the list);
a third one may name the task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from judge.api import Judge
from judge.hacks import kinds
from judge.settings import JudgeSettings
from judge.types import Candidate, Status, Verdict
from tasks.loader import load_task

HERE = Path(__file__).parent
ATTACKS = sorted((HERE / "attacks").glob("*.py"))
CONTROLS = sorted((HERE / "controls").glob("*.py"))
SETTINGS = JudgeSettings(
    pairs=3, calls=4, warmup_calls=1, call_seconds=3, load_seconds=6, compile_seconds=6, memory_mb=2048
)
NOT_ON_CPU = {
    7: "streams",
    11: "graphs",
    15: "the GPU's L2",
    16: "the GPU's L2",
    17: "names of GPU kernels",
    19: "CUPTI",
    23: "a property of tasks: tests/judge/test_judge_admission.py",
}
SEEN: dict[str, tuple[Path, Verdict]] = {}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(SETTINGS) as one:
        yield one


def header(path: Path) -> tuple[set[str], int, Path]:
    """(expected statuses, number of the way of cheating or 0, task)."""
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# expect: "), path
    number = re.match(r"# Way of cheating number (\d+): ", lines[1])
    task = lines[2].removeprefix("# task: ") if lines[2].startswith("# task: ") else "task"
    return set(lines[0].removeprefix("# expect: ").split("|")), int(number[1]) if number else 0, HERE / f"{task}.py"


def stopping_layer(verdict: Verdict) -> str:
    """What stopped it, by the verdict alone."""
    message = verdict.message
    match verdict.status:
        case Status.WIN:
            return "NOTHING"
        case Status.CORRECT:
            return "no kernel of its own" if "brings no kernel" in message else "clock: it is not faster"
        case Status.COMPILE_ERROR:
            return "compiler's jail"
        case Status.TIMEOUT:
            return "deadline"
        case Status.REJECTED:
            return "wire and protocol"
        case Status.INCORRECT:
            if re.search(r"has shape|is \w+, should be (?:float|int|bool)|returned ", message):
                return "shape, dtype, number of outputs"
            if "time" in verdict.phase_seconds:
                return "timed calls are checked"
            if not re.search(r"variant default", message):
                return "held-out shapes"
            return "numbers" if "given inputs" in message else "other distributions"
        case _:
            if re.search(r"Error: \[Errno|PermissionError|Operation not permitted|No such file", message):
                return "no such right or file"
            return "process ended" if re.search(r"was ended by|exited with", message) else "error of its own"


@pytest.mark.parametrize("path", [*ATTACKS, *CONTROLS], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_verdict_is_the_one_expected(path: Path, judge: Judge) -> None:
    expected, _, task = header(path)
    verdict = judge.judge(load_task(task), Candidate(code=path.read_text()))
    SEEN[f"{path.parent.name}/{path.stem}"] = (path, verdict)
    assert str(verdict.status) in expected, f"{verdict.status}: {verdict.message}"
    assert "\n" not in verdict.message
    if path.parent.name == "attacks":
        assert verdict.status is not Status.WIN


def test_nothing_is_left_behind_by_all_of_them(judge: Judge) -> None:
    """After the attacks above the judge has its zygote and nothing else, and the machine has no file of theirs."""
    children = psutil.Process().children(recursive=True)
    assert len(children) == 1, children
    assert not Path("/tmp/warpsmith-was-here").exists()
    assert not list(Path("/dev/shm").glob("answer*"))


def test_the_table_of_attacks_and_layers() -> None:
    """For readers: what stopped each attack that ran, and the layer that is meant to stop its kind."""
    print(f"\n{'kind':>4}  {'attack':28} {'verdict':14} {'stopped by':32} {'meant to be stopped by':20} message")
    for path, verdict in sorted(SEEN.values(), key=lambda seen: (header(seen[0])[1], seen[0].stem)):
        _, number, _ = header(path)
        layer, meant = (stopping_layer(verdict), kinds()[number].stopped_by) if number else ("honest: passes", "")
        print(f"{number or '':>4}  {path.stem:28} {verdict.status:14} {layer:32} {meant:20} {verdict.message[:70]}")
    attacks = [verdict for path, verdict in SEEN.values() if path.parent.name == "attacks"]
    controls = [verdict for path, verdict in SEEN.values() if path.parent.name == "controls"]
    print(f"{sum(v.status is Status.WIN for v in attacks)} of {len(attacks)} attacks win")
    print(f"{sum(not v.is_correct for v in controls)} of {len(controls)} controls fail")


def test_the_corpus_covers_every_kind_that_a_cpu_can_have() -> None:
    assert len(ATTACKS) >= 100
    assert len(CONTROLS) >= 25
    known = {str(status) for status in Status}
    for path in [*ATTACKS, *CONTROLS]:
        expected, _, task = header(path)
        assert expected <= known, path
        assert "win" not in expected or path.parent.name == "controls"
        assert task.is_file(), path
    covered = {header(path)[1] for path in ATTACKS}
    assert covered <= set(kinds())
    assert set(kinds()) - covered == set(NOT_ON_CPU)
