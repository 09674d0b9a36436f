import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from archive.store import Archive
from archive.types import Record
from judge.types import Baselines, Status, Verdict


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    archive = Archive(str(tmp_path / "archive.db"))
    yield archive
    archive.close()


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A record of task "op"; a speedup makes it a win."""

    def make(speedup: float | None = None, low: float | None = None, **changes: object) -> Record:
        status = Status.WIN if speedup else Status.COMPILE_ERROR
        fields: dict[str, object] = {
            "run_id": "run",
            "task_name": "op",
            "task_id": "op-id",
            "source": "policy",
            "operator": "contrast",
            "code": "class ModelNew: pass\n",
            "verdict": Verdict(status=status, speedup=speedup, speedup_low=low),
        }
        return Record.model_validate({**fields, **changes})

    return make


@pytest.fixture
def full_record() -> Record:
    """Every field set, to values that are easily lost."""
    return Record(
        record_id="full",
        run_id="r1",
        task_name="softmax",
        task_id="abc",
        source="policy",
        operator="contrast",
        code="x = '\0é\U0001f680'\r\n\tclass",
        analysis="bound by memory",
        completion="## Code\n```",
        parents=("p1", "p2"),
        group_id="g",
        step=3,
        policy_version=2,
        verdict=Verdict(
            status=Status.WIN,
            speedup=1.1,
            speedup_low=0.1 + 0.2,
            speedup_high=1e300,
            candidate_ms=5e-324,
            baselines=Baselines(eager=1 / 3),
            best_baseline="eager",
            max_error=math.inf,
            tolerance=-math.inf,
            phase_seconds={"compile": 0.4, "time": math.inf},
            flags=("no custom kernel",),
            sandbox=("landlock", "seccomp"),
            hardware={"cpu": "inf"},
            message='a "quoted" line',
        ),
        created_at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    )
