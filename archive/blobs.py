"""Large texts by their content: on the local disk, or wherever fsspec reaches (S3, GCS, ...).

A blob's name is the SHA-256 of its bytes, so the same prompt of sixteen candidates is kept once, a copy can be checked
without a list, and two writers of one blob cannot disagree. Credentials come from the environment, as fsspec's
packages for each service have it.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from archive.errors import ArchiveError

_NAME = re.compile(r"[0-9a-f]{64}")
_FRESH_SECONDS = 300.0
"""A blob that this process wrote within this time is not written again; far below any age that ``gc`` takes."""
_REMEMBERED = 4096


class BlobStore:
    """Blobs below one URL or folder. Raises ArchiveError, in one line, from every method."""

    def __init__(self, url: str) -> None:
        """
        Args:
            url: a folder, or an fsspec URL such as ``s3://bucket/kernels``; made when the first blob is put.
        """
        self.url = url
        self._written: dict[str, float] = {}
        self._mutex = threading.Lock()

    def put(self, data: bytes) -> str:
        """Keep bytes; returns their SHA-256 as 64 hex digits. Whole or not there, also when the writer is killed."""
        name = hashlib.sha256(data).hexdigest()
        now = time.monotonic()
        with self._mutex:
            if now - self._written.get(name, -_FRESH_SECONDS) < _FRESH_SECONDS:
                return name
        with self._refusals():
            # Written even where it is: that renews its age, so that no gc takes it before its record is there.
            if self._is_local:
                path = self._local_path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(f".{uuid.uuid4().hex}.partial")
                try:
                    partial.write_bytes(data)
                    partial.replace(path)
                finally:
                    partial.unlink(missing_ok=True)
            else:
                system, root = self._place
                system.pipe_file(f"{root}/{name[:2]}/{name}", data)
        with self._mutex:
            if len(self._written) >= _REMEMBERED:
                self._written.clear()
            self._written[name] = now
        return name

    def get(self, name: str) -> bytes:
        """The bytes of a blob. Raises ArchiveError when it is missing or damaged."""
        if not _NAME.fullmatch(name):
            raise ArchiveError(f"{self.url}: {name[:80]!r} is no blob's name")
        with self._refusals():
            try:
                system, root = self._place
                data: bytes = system.cat_file(f"{root}/{name[:2]}/{name}")
            except FileNotFoundError as error:
                raise ArchiveError(
                    f"{self.url}: blob {name[:16]} is missing; copy the blobs along with the archive"
                ) from error
        if hashlib.sha256(data).hexdigest() != name:
            raise ArchiveError(f"{self.url}: blob {name[:16]} is damaged; restore a copy of it")
        return data

    def names(self) -> Iterator[tuple[str, datetime, int]]:
        """(name, when it was last written, bytes) of every blob."""
        with self._refusals():
            system, root = self._place
            if not system.exists(root):
                return
            for path, info in system.find(root, detail=True).items():
                name = path.rsplit("/", 1)[-1]
                if _NAME.fullmatch(name):
                    yield name, _written_at(system, path, info), int(info.get("size") or 0)

    def written(self, name: str) -> datetime | None:
        """When a blob was last written; None where it is not there."""
        with self._refusals():
            system, root = self._place
            path = f"{root}/{name[:2]}/{name}"
            try:
                return _written_at(system, path, system.info(path))
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        """Remove a blob; one that is gone already is fine."""
        with self._mutex:
            self._written.pop(name, None)
        with self._refusals():
            system, root = self._place
            with suppress(FileNotFoundError):
                system.rm_file(f"{root}/{name[:2]}/{name}")

    def remove_partials(self, older_than_seconds: float) -> int:
        """Remove what killed writers left behind (local disks only: elsewhere nothing is left); returns how many."""
        if not self._is_local:
            return 0
        removed = 0
        with self._refusals():
            for path in Path(self._place[1]).glob("*/.*.partial"):
                if time.time() - path.stat().st_mtime > older_than_seconds:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed

    @cached_property
    def _place(self) -> tuple[Any, str]:
        import fsspec.core

        system, root = fsspec.core.url_to_fs(self.url)
        return system, root.rstrip("/")

    @property
    def _is_local(self) -> bool:
        return "://" not in self.url or self.url.startswith(("file://", "local://"))

    def _local_path(self, name: str) -> Path:
        return Path(self._place[1]) / name[:2] / name

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise ArchiveError(
                f"{self.url}: this address needs another package ({_line(error)}); pip install it"
            ) from error
        except ValueError as error:
            raise ArchiveError(
                f"{self.url}: not an address for blobs ({_line(error)}); such as s3://bucket/x"
            ) from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else _line(error)
            raise ArchiveError(f"{self.url}: blobs cannot be read or written ({reason})") from error


def _written_at(system: Any, path: str, info: dict[str, Any]) -> datetime:
    for key in ("mtime", "LastModified", "updated", "created"):
        value = info.get(key)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
    found: datetime = system.modified(path)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
