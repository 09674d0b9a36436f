"""Collections as they are published, read from small files; and what an audit says of them, by hand."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest

from judge.audit_summary import AuditResult, summarise
from judge.collection import ENGINEER_COLUMNS, code_of, engineer_candidate, read_collection
from judge.errors import CollectionError
from judge.types import Status, Verdict
from tasks.errors import TaskError
from tasks.loader import load_task

TASK = (Path(__file__).parents[1] / "redteam" / "task.py").read_text()
NEW = "class ModelNew:\n    pass\n"


def l1_row(task_id: int, code: Any, **more: Any) -> dict[str, Any]:
    return {"level_id": 1, "task_id": task_id, "ref_code": TASK, "custom_code": code, "score_default": 1.5, **more}


def engineer_rows(*rows: dict[str, Any]) -> Any:
    import pyarrow as pa

    texts = dict.fromkeys(ENGINEER_COLUMNS, "")
    numbers: dict[str, Any] = {
        "Level_ID": 1,
        "Task_ID": 1,
        "CUDA_Speedup_Native": 2.0,
        "CUDA_Speedup_Compile": 1.6,
        "__index_level_0__": 0,
        "Correct": True,
    }
    return pa.Table.from_pylist([{**texts, **numbers, "PyTorch_Code_Module": TASK, **row} for row in rows])


def test_the_archive_has_nineteen_columns() -> None:
    assert len(set(ENGINEER_COLUMNS)) == 19


@pytest.mark.parametrize("value", [None, "", "  \n", "None", "null", "NaN", math.nan, 3])
def test_what_stands_for_no_candidate(value: Any) -> None:
    assert code_of(value) is None


def test_a_folder_of_candidates_beside_their_task(tmp_path: Path) -> None:
    for name, text in {"task": TASK, "a": NEW, "b": "None", "notes.txt": "x"}.items():
        (tmp_path / (name if "." in name else f"{name}.py")).write_text(text)
    (tmp_path / "c.py").write_bytes(b"\xff\xfe")
    first, second, third = read_collection(tmp_path)
    assert (first.name, first.candidate and first.candidate.code) == ("a", NEW)
    assert (second.candidate, second.reason) == (None, "no candidate was published")
    assert (third.candidate, third.reason) == (None, "not UTF-8")
    assert first.task is not None
    assert first.task.name == tmp_path.name


def test_a_folder_of_folders_and_a_folder_of_a_named_task(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.py").write_text(TASK)
        (tmp_path / name / "fast.py").write_text(NEW)
    assert [entry.name for entry in read_collection(tmp_path)] == ["one/fast", "two/fast"]
    (tmp_path / "one" / "task.py").unlink()
    (entry,) = read_collection(tmp_path / "one", load_task("softmax"))
    assert entry.task is not None
    assert entry.task.name == "softmax"


def test_cuda_l1_lines(tmp_path: Path) -> None:
    rows = [
        l1_row(3, NEW, score_torch_compile_default=1.2, score_cuda_graph="0.9", score_cudnn=7),
        l1_row(4, None, score_default=None),
        {**l1_row(5, NEW), "ref_code": "import torch"},
    ]
    (tmp_path / "h100.json").write_text("\n".join(map(json.dumps, rows)) + "\n")
    good, none, broken = read_collection(tmp_path / "h100.json")
    assert (good.name, good.published) == ("level1_3", {"eager": 1.5, "compile": 1.2, "cuda_graph": 0.9})
    assert good.task is not None
    assert (good.task.name, good.task.level, good.task.source) == ("level1_3", 1, TASK)
    assert (none.candidate, none.published, none.reason) == (None, {}, "no candidate was published")
    assert broken.task is None
    assert "no Model at top level" in broken.reason
    assert len({entry.entry_id for entry in (good, none, broken)}) == 3


def test_cuda_l1s_first_release_by_level(tmp_path: Path) -> None:
    row = {"task_id": 7, "ref_code": TASK, "custom_code": NEW, "score": "6.304"}
    (tmp_path / "a100.json").write_text(json.dumps({"1": [row], "2": [row]}))
    first, second = read_collection(tmp_path / "a100.json")
    assert (first.name, second.name, second.published) == ("level1_7", "level2_7", {"eager": 6.304})


def test_the_engineers_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    functional = "def module_fn(x):\n    return x\n"
    table = engineer_rows(
        {"Kernel_Name": "relu_v1", "CUDA_Code": "__global__ void k() {}", "PyTorch_Code_Functional": functional},
        {"Kernel_Name": "relu_v2", "CUDA_Code": "None", "Correct": False, "CUDA_Speedup_Native": None},
        {"Kernel_Name": "relu_v3", "CUDA_Code": "void f() {}", "PyTorch_Code_Functional": "", "Correct": None},
    )
    assert table.column_names == list(ENGINEER_COLUMNS)
    pq.write_table(table, tmp_path / "level_1.parquet")
    first, second, third = read_collection(tmp_path / "level_1.parquet")
    assert (first.name, first.published, first.published_correct) == (
        "level1_1/relu_v1",
        {"eager": 2.0, "compile": 1.6},
        True,
    )
    assert first.candidate is not None
    assert functional in first.candidate.code
    assert (second.candidate, second.published, second.published_correct) == (None, {"compile": 1.6}, False)
    assert third.candidate is None
    assert "no functional reference" in third.reason


def test_a_kernels_text_survives_being_put_into_a_candidate() -> None:
    kernel = "__global__ void k() { printf(\"'''\\n\\\"\"); } // \u00e9 {braces}"
    tree = ast.parse(engineer_candidate(kernel, "class Model:\n    pass\n"))
    assert kernel in [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.json", b"", "holds no candidates"),
        ("x.json", b'{"task_id": 1}\n{"task_id"\n', "x.json: line 1 has no ref_code"),
        ("x.json", b'{"level_id": 1, "task_id": 1, "ref_code": "", "custom_code": ""}\n{oops\n', "x.json:2: not JSON"),
        ("x.json", b"[3]", "item 0 is no JSON object"),
        ("x.json", b"3", "neither objects"),
        ("x.bin", b"\xff\x00", "neither a folder, nor Parquet, nor JSON"),
        ("x.parquet", b"PAR1 oops", "not a Parquet file"),
    ],
)
def test_what_is_no_collection_is_said_in_one_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CollectionError, match=words) as caught:
        read_collection(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_columns_are_named(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(engineer_rows({}).drop_columns(["CUDA_Code"]), tmp_path / "x.parquet")
    with pytest.raises(CollectionError, match="has no column CUDA_Code"):
        read_collection(tmp_path / "x.parquet")
    with pytest.raises(CollectionError, match="no such file or folder"):
        read_collection(tmp_path / "no")
    with pytest.raises(CollectionError, match=r"holds no task\.py"):
        read_collection(tmp_path)
    (tmp_path / "task.py").write_text("import torch")
    with pytest.raises(TaskError):
        read_collection(tmp_path)


def result(
    name: str, status: Status | None, measured: float | None, published: float | None, low: float = 0.0
) -> AuditResult:
    verdict = status and Verdict(
        status=status, speedup=measured, speedup_low=low, best_baseline="eager", message=f"why {status}"
    )
    return AuditResult(
        entry_id=name, name=name, published={"eager": published} if published else {}, verdict=verdict, reason="none"
    )


def test_the_summary_by_hand() -> None:
    """Measured 1, 2, 4: geomean 2, median 2, mean 7/3. Five judged; a judge_error and an absent one are not."""
    summary = summarise(
        [
            result("a", Status.CORRECT, 1.0, 2.0, low=0.9),
            result("b", Status.WIN, 2.0, 2.0, low=1.6),
            result("c", Status.WIN, 4.0, 16.0, low=3.0),
            result("d", Status.INCORRECT, None, 100.0),
            result("e", Status.REJECTED, None, None),
            result("f", Status.JUDGE_ERROR, None, 3.0),
            result("g", None, None, None),
        ]
    )
    assert (summary.entries, summary.judged) == (7, 5)
    assert summary.outcomes == {
        "win": 2,
        "correct": 1,
        "incorrect": 1,
        "rejected": 1,
        "judge_error": 1,
        "not judged": 1,
    }
    assert summary.measured.geomean == pytest.approx(2.0)
    assert (summary.measured.count, summary.measured.median, summary.measured.mean) == (3, 2.0, pytest.approx(7 / 3))
    assert summary.published_of_correct.geomean == pytest.approx(4.0)  # (2 * 2 * 16) ** (1 / 3)
    assert summary.published.count == 4
    assert summary.fast == {"0": 0.6, "1": 0.4, "1.1": 0.4, "1.5": 0.4, "2": 0.2, "5": 0.0}
    assert summary.fast_proved["1.5"] == 0.4
    assert summary.fast_proved["2"] == 0.2
    assert summary.fast_published == {"0": 0.8, "1": 0.8, "1.1": 0.8, "1.5": 0.8, "2": 0.4, "5": 0.4}
    assert summary.claims_that_failed == 1
    assert summary.reasons["incorrect"] == {"why incorrect": 1}
    assert summary.reasons["not judged"] == {"none": 1}
    assert summarise([]).fast["0"] == 0.0
