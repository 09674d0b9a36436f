import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from archive.blobs import BlobStore
from archive.errors import ArchiveError
from archive.rows import INLINE_BYTES
from archive.store import Archive
from archive.types import Record

Make = Callable[..., Record]
LONG = "é" * INLINE_BYTES


@pytest.fixture(params=["folder", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    places = {"folder": str(tmp_path / "b"), "file": f"file://{tmp_path}/b", "memory": f"memory://{tmp_path.name}"}
    return BlobStore(places[request.param])


def test_a_blob_comes_back_under_the_hash_of_its_content(store: BlobStore) -> None:
    assert list(store.names()) == []
    for data in (b"", b"a kernel", os.urandom(300_000)):
        name = store.put(data)
        assert name == hashlib.sha256(data).hexdigest()
        assert store.put(data) == name
        assert store.get(name) == data
    assert sorted(size for _, _, size in store.names()) == [0, 8, 300_000]


def test_a_removed_blob_is_gone_and_can_be_put_again(store: BlobStore) -> None:
    name = store.put(b"x")
    assert store.written(name) is not None
    store.remove(name)
    store.remove(name)
    assert store.written(name) is None
    with pytest.raises(ArchiveError, match="missing"):
        store.get(name)
    assert store.put(b"x") == name
    assert store.get(name) == b"x"


def test_a_damaged_blob_is_noticed(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path))
    name = store.put(b"kernel")
    (tmp_path / name[:2] / name).write_bytes(b"kernem")
    with pytest.raises(ArchiveError, match="damaged"):
        store.get(name)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_only_hashes_are_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="no blob's name"):
        BlobStore(str(tmp_path)).get(name)


@pytest.mark.parametrize("url", ["nosuch://bucket/x", "gs://bucket/x"])
def test_an_address_that_cannot_be_used_is_one_line(url: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        BlobStore(url).put(b"x")
    assert url in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_killed_writers_left_is_removed_when_old(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path))
    name = store.put(b"x")
    left = tmp_path / name[:2] / ".abc.partial"
    left.write_bytes(b"half")
    assert store.remove_partials(60) == 0
    os.utime(left, (time.time() - 100, time.time() - 100))
    assert store.remove_partials(60) == 1
    assert [path.name for path in (tmp_path / name[:2]).iterdir()] == [name]


def test_large_texts_are_kept_once_beside_the_database(archive: Archive, make_record: Make) -> None:
    records = [make_record(1.0, prompt=LONG, completion=f"{i}", extra={"profile": LONG * 2}) for i in range(5)]
    archive.add_many(records)
    assert archive.records() == records
    assert archive.blobs is not None
    assert len(list(archive.blobs.names())) == 2
    assert Path(f"{archive.url.database}.blobs").is_dir()
    other = Archive(str(archive.url.database))
    assert list(other.iterate(batch=2)) == records


def test_texts_up_to_the_limit_stay_in_the_row(archive: Archive, make_record: Make) -> None:
    archive.add(make_record(1.0, code="a" * INLINE_BYTES))
    assert archive.blobs is not None
    assert list(archive.blobs.names()) == []
    archive.add(make_record(1.0, code="a" * (INLINE_BYTES + 1)))
    assert len(list(archive.blobs.names())) == 1


def test_the_archive_remembers_where_its_blobs_are(tmp_path: Path, make_record: Make) -> None:
    path, place = str(tmp_path / "a.db"), f"memory://{tmp_path.name}"
    record = make_record(1.0, code=LONG)
    Archive(path, blobs=place).add(record)
    assert Archive(path).records() == [record]
    assert not Path(f"{path}.blobs").exists()
    with pytest.raises(ArchiveError, match=r"its blobs are in memory://.* already"):
        Archive(path, blobs=str(tmp_path / "elsewhere"))


def test_a_database_copied_without_its_blobs_says_so(archive: Archive, tmp_path: Path, make_record: Make) -> None:
    archive.add(make_record(1.0, code=LONG, record_id="x"))
    archive.close()
    (tmp_path / "copy.db").write_bytes(Path(archive.url.database or "").read_bytes())
    with pytest.raises(ArchiveError, match="copy the blobs along"):
        Archive(str(tmp_path / "copy.db")).get("x")
