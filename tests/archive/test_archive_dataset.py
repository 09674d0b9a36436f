import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from archive.dataset import CLAIM, PUBLISHED_COLUMNS, export_full, export_published, import_dataset
from archive.errors import ArchiveError
from archive.store import Archive
from archive.types import ArchivedTask, Record
from judge.types import Baselines, Status, Verdict
from tasks.loader import suite_tasks

Make = Callable[..., Record]


def _row(number: int, **changes: Any) -> dict[str, Any]:
    row = {
        "Op_Name": f"{number}_Softmax",
        "Level_ID": 1,
        "Task_ID": 23,
        "Kernel_Name": f"softmax_base_{number}",
        "CUDA_Runtime": 0.1 + 0.2,
        "PyTorch_Native_Runtime": 0.9,
        "PyTorch_Compile_Runtime": 0.5,
        "CUDA_Speedup_Native": 3.0000000000000004,
        "CUDA_Speedup_Compile": 5 / 3,
        "CUDA_Code": "__global__ void f() {}\n// é \U0001f680 \0",
        "PyTorch_Code_Module": "class Model: pass",
        "PyTorch_Code_Functional": "def module_fn(): pass",
        "Correct": True,
        "Max_Diff": 1e-7,
        "Error": None,
        "NCU_Profile": "{'metrics': 1}",
        "Torch_Profile": "p" * 40_000,
        "Clang_Tidy": None,
        "__index_level_0__": number,
    }
    return {**row, **changes}


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in PUBLISHED_COLUMNS.items()])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def _same(a: object, b: object) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def test_a_published_dataset_comes_out_as_it_went_in(archive: Archive, tmp_path: Path) -> None:
    levels = {
        1: [_row(i, Task_ID=i % 3) for i in range(700)],
        2: [
            _row(1, Level_ID=2, PyTorch_Code_Module="b", Correct=False, Error="nvcc: \n error", CUDA_Runtime=math.nan),
            _row(2, Level_ID=2, PyTorch_Code_Module="b", Max_Diff=math.inf, CUDA_Speedup_Native=None),
            _row(3, Level_ID=2, PyTorch_Code_Module=None, CUDA_Code=None, Op_Name="x"),
            _row(4, Level_ID=2, PyTorch_Code_Module=None, CUDA_Code="", Op_Name="x"),
        ],
    }
    (tmp_path / "in").mkdir()
    for level, rows in levels.items():
        _write(tmp_path / "in" / f"level_{level}.parquet", rows)
    assert import_dataset(archive, tmp_path / "in") == 704
    assert import_dataset(archive, tmp_path / "in") == 0
    written = export_published(archive, tmp_path / "out")
    assert written.records == 704
    assert [path.name for path in written.files] == ["level_1.parquet", "level_2.parquet"]
    for level, rows in levels.items():
        table = pq.read_table(tmp_path / "out" / f"level_{level}.parquet")
        assert table.schema.names == list(PUBLISHED_COLUMNS)
        assert len(table.schema.names) == 19
        for got, wanted in zip(table.to_pylist(), rows, strict=True):
            assert all(_same(got[name], wanted[name]) for name in PUBLISHED_COLUMNS), (got, wanted)


def test_a_published_speedup_is_a_claim_and_never_a_win(archive: Archive, tmp_path: Path) -> None:
    _write(tmp_path / "level_1.parquet", [_row(1, CUDA_Speedup_Native=150.0)])
    import_dataset(archive, tmp_path / "level_1.parquet")
    (record,) = archive.records()
    assert record.verdict.status is Status.JUDGE_ERROR
    assert record.verdict.flags == (CLAIM,)
    assert (record.score, record.verdict.speedup) == (0.0, None)
    assert "150.00x" in record.verdict.message
    assert archive.best(record.task_id) is None
    assert archive.tasks()[record.task_id].source == "class Model: pass"


def test_our_schema_gives_back_the_same_archive(
    archive: Archive, tmp_path: Path, full_record: Record, make_record: Make
) -> None:
    archive.add_tasks(ArchivedTask.of(task) for task in suite_tasks())
    task = suite_tasks()[0]
    rich = make_record(
        2.0,
        task_id=task.task_id,
        task_name=task.name,
        model="m",
        prompt="p" * 50_000,
        prompt_tokens=3,
        completion_tokens=4,
        cost_usd=0.1 + 0.2,
        software={"torch": "2"},
        extra={"ncu_profile": "x"},
    )
    archive.add_many([full_record, rich, *(make_record(1.0 + i) for i in range(1200))])
    written = export_full(archive, tmp_path / "out")
    assert written.records == 1202
    other = Archive(str(tmp_path / "other.db"))
    assert import_dataset(other, tmp_path / "out") == 1202
    assert other.records() == archive.records()
    assert other.tasks() == {task.task_id: ArchivedTask.of(task)}, "tasks without a record are left behind"
    row = pq.read_table(written.files[0]).to_pylist()[1]
    assert (row["cost_usd"], row["software"], row["task_level"]) == (0.1 + 0.2, '{"torch": "2"}', task.level)
    assert row["task_source"] == task.source
    assert row["baseline_eager_ms"] is None


def test_records_of_our_own_fill_the_published_columns(archive: Archive, tmp_path: Path, make_record: Make) -> None:
    verdict = Verdict(
        status=Status.WIN,
        speedup=1.9,
        candidate_ms=0.5,
        baselines=Baselines(eager=1.0, compile=0.75),
        max_error=0.25,
    )
    archive.add_tasks([ArchivedTask(task_id="b", name="gelu", level=2, source="class Model: ...")])
    archive.add_many(
        [
            make_record(record_id="w" * 32, task_name="gelu", task_id="b", verdict=verdict, extra={"ncu_profile": "n"}),
            make_record(
                record_id="e" * 32,
                task_name="gelu",
                task_id="b",
                verdict=Verdict(status=Status.INCORRECT, message="differs", candidate_ms=0.1),
            ),
            make_record(task_name="unknown", task_id="c"),
        ]
    )
    written = export_published(archive, tmp_path)
    assert [path.name for path in written.files] == ["level_0.parquet", "level_2.parquet"]
    win, wrong = pq.read_table(tmp_path / "level_2.parquet").to_pylist()
    assert (win["Op_Name"], win["Level_ID"], win["Task_ID"], win["Correct"]) == ("gelu", 2, 1, True)
    assert (win["CUDA_Speedup_Native"], win["CUDA_Speedup_Compile"], win["CUDA_Runtime"]) == (2.0, 1.5, 0.5)
    assert (win["Max_Diff"], win["Error"], win["NCU_Profile"]) == (0.25, None, "n")
    assert (wrong["Correct"], wrong["Error"], wrong["CUDA_Speedup_Native"]) == (False, "differs", None)
    assert wrong["Kernel_Name"] == "gelu_eeeeeeeeeeee"


def test_the_calls_of_the_published_example_load_it(archive: Archive, tmp_path: Path, make_record: Make) -> None:
    pytest.importorskip("datasets", reason="datasets is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    from datasets import load_dataset

    task = suite_tasks()[0]
    archive.add_tasks([ArchivedTask.of(task)])
    archive.add_many(make_record(1.0 + i, task_id=task.task_id, task_name=task.name) for i in range(5))
    export_published(archive, tmp_path / "published")
    export_full(archive, tmp_path / "full")
    split = f"level_{task.level}"
    loaded = load_dataset(str(tmp_path / "published"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == [split]
    assert list(loaded[split].to_pandas().columns) == list(PUBLISHED_COLUMNS)
    assert polars.read_parquet(tmp_path / "published" / f"{split}.parquet").shape == (5, 19)
    path = tmp_path / "published" / f"{split}.parquet"
    assert duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE Correct").fetchall() == [(5,)]
    full = load_dataset(str(tmp_path / "full"), split="train", cache_dir=str(tmp_path / "cache2"))
    assert full["speedup"] == [1.0 + i for i in range(5)]
    assert polars.read_parquet(tmp_path / "full" / "records.parquet")["speedup"].max() == 5.0


def test_a_card_is_written_whatever_a_source_is_called(archive: Archive, tmp_path: Path, make_record: Make) -> None:
    archive.add_many([make_record(1.0, source="`<script>`|\n# evil"), make_record()])
    export_published(archive, tmp_path)
    text = (tmp_path / "README.md").read_text()
    meta = yaml.safe_load(text.split("---")[1])
    assert meta["configs"][0]["data_files"] == [{"split": "level_0", "path": "level_0.parquet"}]
    assert meta["size_categories"] == ["n<1K"]
    assert "2 candidates for 1 tasks" in text
    assert "| win | 1 |" in text
    assert "<script>" not in text


def test_what_is_no_dataset_is_refused_in_one_line(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "no.parquet").write_text("no")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign.parquet")
    pq.write_table(pa.table({name: ["a"] for name in PUBLISHED_COLUMNS}), tmp_path / "types.parquet")
    for name in ("empty", "no.parquet", "foreign.parquet", "missing.parquet", "types.parquet"):
        with pytest.raises(ArchiveError) as caught:
            import_dataset(archive, tmp_path / name)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
    with pytest.raises(ArchiveError, match="cannot be made"):
        export_full(archive, tmp_path / "no.parquet" / "x")
