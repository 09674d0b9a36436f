"""The red team on a GPU: attacks that only a GPU can have, the honest ones, and the CPU's attacks that bring no C++.

    pytest -m gpu tests/redteam/test_redteam_cuda.py -s        prints the table attack x layer that stopped it

Files as in test_redteam.py. That every text compiles, and that the corpus covers its kinds, is tested without a GPU.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from judge.api import Judge
from judge.hacks import kinds
from judge.settings import JudgeSettings
from judge.types import Candidate, Status, Verdict
from tasks.loader import load_task

HERE = Path(__file__).parent
ATTACKS = sorted((HERE / "cuda" / "attacks").glob("*.py"))
CONTROLS = sorted((HERE / "cuda" / "controls").glob("*.py"))
OF_THE_CPU = [path for path in sorted((HERE / "attacks").glob("*.py")) if "load_cpp" not in path.read_text()]
SETTINGS = JudgeSettings(
    device="cuda",
    cuda_pairs=3,
    cuda_batches=2,
    cuda_batch_ms=15,
    cuda_compile_baseline=False,
    call_seconds=4,
    load_seconds=10,
    total_seconds=60,
)
GPU_KINDS = {1, 3, 7, 8, 9, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 27, 28, 30, 34, 35, 45, 51}
SEEN: dict[str, tuple[Path, Verdict]] = {}


@pytest.fixture(scope="module")
def gpu_judge() -> Iterator[Judge]:
    with Judge(SETTINGS) as one:
        yield one


def header(path: Path) -> tuple[set[str], str, Path]:
    """(expected statuses, what it is, task)."""
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# expect: "), path
    task = lines[2].removeprefix("# task: ") if lines[2].startswith("# task: ") else "task"
    return set(lines[0].removeprefix("# expect: ").split("|")), lines[1].removeprefix("# "), HERE / f"{task}.py"


def number_of(path: Path) -> int:
    """Of the way of cheating, 0 for a control."""
    text = header(path)[1]
    return int(text.split()[4].rstrip(":")) if text.startswith("Way of cheating number ") else 0


def judged(judge: Judge, path: Path) -> Verdict:
    began = time.monotonic()
    verdict = judge.judge(load_task(header(path)[2]), Candidate(code=path.read_text()))
    name = f"{path.parent.name}/{path.stem}"
    print(f"\n{name} {time.monotonic() - began:.1f} s {verdict.status}: {verdict.message[:200]}", flush=True)
    SEEN[name] = (path, verdict)
    assert "\n" not in verdict.message
    return verdict


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("path", [*CONTROLS, *ATTACKS], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_verdict_on_a_gpu_is_the_one_expected(path: Path, gpu_judge: Judge) -> None:
    verdict = judged(gpu_judge, path)
    assert str(verdict.status) in header(path)[0], f"{verdict.status}: {verdict.message}"


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("path", OF_THE_CPU, ids=lambda path: path.stem)
def test_an_attack_of_the_cpu_wins_no_more_on_a_gpu(path: Path, gpu_judge: Judge) -> None:
    verdict = judged(gpu_judge, path)
    assert verdict.status not in (Status.WIN, Status.JUDGE_ERROR), f"{verdict.status}: {verdict.message}"


@pytest.mark.gpu
@pytest.mark.slow
def test_the_honest_kernel_still_wins_after_all_of_them(gpu_judge: Judge) -> None:
    assert judged(gpu_judge, HERE / "cuda" / "controls" / "plain.py").status is Status.WIN


@pytest.mark.gpu
def test_the_table_of_attacks_on_a_gpu() -> None:
    """For readers: what became of each file that ran."""
    for path, verdict in sorted(SEEN.values(), key=lambda seen: (number_of(seen[0]), seen[0].stem)):
        number = number_of(path)
        meant = kinds()[number].stopped_by if number else "honest: passes"
        print(f"{number or '':>4}  {path.stem:36} {verdict.status:14} {meant:20} {verdict.message[:90]}")
    attacks = [verdict for path, verdict in SEEN.values() if path.parent.name == "attacks"]
    controls = [verdict for path, verdict in SEEN.values() if path.parent.name == "controls"]
    print(f"{sum(v.status is Status.WIN for v in attacks)} of {len(attacks)} attacks win")
    print(f"{sum(not v.is_correct for v in controls)} of {len(controls)} controls fail")


def test_the_gpu_corpus_covers_what_a_gpu_adds() -> None:
    assert len(ATTACKS) >= 50
    assert len(CONTROLS) >= 15
    assert {number_of(path) for path in ATTACKS} >= GPU_KINDS
    assert {number_of(path) for path in ATTACKS} <= set(kinds())
    for path in [*ATTACKS, *CONTROLS]:
        expected, _, task = header(path)
        assert expected <= {str(status) for status in Status}, path
        assert "win" not in expected or path.parent.name == "controls"
        assert load_task(task).variants_on("cuda"), path


def cuda_texts(path: Path) -> list[str]:
    """The string constants of a file that hold kernels."""
    tree = ast.parse(path.read_text())
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value
    ]


@pytest.mark.parametrize("path", [*CONTROLS, *ATTACKS], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_kernels_of_the_gpu_corpus_have_readable_declarations(path: Path) -> None:
    """An attack whose kernel cannot even be called shows nothing."""
    from judge.load_cuda import parse_kernels

    for text in cuda_texts(path):
        assert parse_kernels(text), path
