"""Every way of cheating that we know of, against the real judge: none may win; honest oddities must pass.

    pytest tests/redteam -s        prints the table attack x verdict

A file's first line says what is expected of it; its second which way of cheating it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from judge.api import Judge
from judge.settings import JudgeSettings
from judge.types import Candidate, Status
from tasks.loader import load_task

HERE = Path(__file__).parent
ATTACKS = sorted((HERE / "attacks").glob("*.py"))
CONTROLS = sorted((HERE / "controls").glob("*.py"))
SETTINGS = JudgeSettings(
    pairs=3, calls=4, warmup_calls=1, call_seconds=3, load_seconds=6, compile_seconds=6, memory_mb=2048
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(SETTINGS) as one:
        yield one


def expected(path: Path) -> set[str]:
    first = path.read_text().splitlines()[0]
    assert first.startswith("# expect: "), path
    return set(first.removeprefix("# expect: ").split("|"))


@pytest.mark.parametrize("path", [*ATTACKS, *CONTROLS], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_verdict_is_the_one_expected(path: Path, judge: Judge) -> None:
    verdict = judge.judge(load_task(HERE / "task.py"), Candidate(code=path.read_text()))
    print(f"\n{path.stem:26} {verdict.status:14} {verdict.message[:110]}")
    assert str(verdict.status) in expected(path), verdict.message
    assert "\n" not in verdict.message
    if path.parent.name == "attacks":
        assert verdict.status is not Status.WIN


def test_nothing_is_left_behind_by_all_of_them(judge: Judge) -> None:
    """After the attacks above the judge has its zygote and nothing else, and the machine has no file of theirs."""
    children = psutil.Process().children(recursive=True)
    assert len(children) == 1, children
    assert not Path("/tmp/warpsmith-was-here").exists()
    assert not list(Path("/dev/shm").glob("answer*"))


def test_the_corpus_has_an_expectation_in_every_file() -> None:
    assert len(ATTACKS) >= 50
    assert len(CONTROLS) >= 10
    known = {str(status) for status in Status}
    for path in [*ATTACKS, *CONTROLS]:
        assert expected(path) <= known, path
        assert "win" not in expected(path) or path.parent.name == "controls"
