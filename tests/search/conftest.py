from collections.abc import Callable

import pytest

from archive.types import Record
from judge.types import Status, Verdict


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A correct record with the given speedup; each has code of its own unless told otherwise."""

    def make(speedup: float, record_id: str = "", *, code: str | None = None, **changes: object) -> Record:
        record_id = record_id or f"r{speedup:g}"
        fields: dict[str, object] = {
            "record_id": record_id,
            "run_id": "run",
            "task_name": "op",
            "task_id": "op-id",
            "source": "policy",
            "operator": "contrast",
            "code": code if code is not None else f"class ModelNew: name = {record_id!r}\n",
            "verdict": Verdict(status=Status.WIN, speedup=speedup, hardware={"cpu": "Test CPU", "threads": "2"}),
        }
        return Record.model_validate({**fields, **changes})

    return make
