from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive.errors import ArchiveError
from archive.export import from_parquet, to_parquet
from archive.store import Archive
from archive.types import Record


def test_a_parquet_file_gives_back_the_same_archive(
    archive: Archive, tmp_path: Path, full_record: Record, make_record: Callable[..., Record]
) -> None:
    archive.add_many([full_record, *(make_record(1.0 + i) for i in range(2500))])
    file = tmp_path / "records.parquet"
    assert to_parquet(archive, file) == 2501
    other = Archive(str(tmp_path / "other.db"))
    assert from_parquet(other, file) == 2501
    assert other.records() == archive.records()
    assert from_parquet(other, file) == 0
    assert sorted(path.name for path in tmp_path.glob("*parquet*")) == ["records.parquet"]


def test_the_columns_are_of_use_to_other_programs(archive: Archive, tmp_path: Path, full_record: Record) -> None:
    archive.add(full_record)
    to_parquet(archive, tmp_path / "r.parquet")
    (row,) = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert (row["task_name"], row["status"], row["speedup"], row["parents"]) == ("softmax", "win", 1.1, ["p1", "p2"])
    assert row["created_at"] == full_record.created_at


def test_an_empty_archive_has_a_parquet_file_too(archive: Archive, tmp_path: Path) -> None:
    assert to_parquet(archive, tmp_path / "r.parquet") == 0
    assert from_parquet(archive, tmp_path / "r.parquet") == 0


def test_what_cannot_be_written_or_read_is_refused_in_one_line(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_text("not parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign.parquet")
    for call in (
        lambda: to_parquet(archive, tmp_path / "missing" / "r.parquet"),
        lambda: from_parquet(archive, tmp_path / "missing.parquet"),
        lambda: from_parquet(archive, tmp_path / "no.parquet"),
        lambda: from_parquet(archive, tmp_path / "foreign.parquet"),
    ):
        with pytest.raises(ArchiveError) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert ".parquet: " in str(caught.value)
