"""Jobs in the archive's database: they outlive every process of the service.

    store = JobStore(Archive(url))
    job = store.submit(request, owner="", task_name="softmax", max_waiting=8)      # on disk when it returns
    mine = store.claim("worker-1")                     # a worker takes the oldest, and holds it by a lease
    store.renew(mine.job_id, "worker-1", asked=4, spent_seconds=20.0)
    store.finish(mine.job_id, "worker-1", JobState.DONE, result={...})

A job belongs to the worker that claimed it while its lease lasts. Each write of a worker says who it is and does
nothing when the job has passed to another, so that a worker that was only slow cannot spoil its successor's work.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import sqlalchemy as sa

from archive.store import Archive
from archive.types import new_id
from serving.job_types import Job, JobEvent, JobState, QueueFullError
from serving.tables import ensure_tables

_metadata = sa.MetaData()
_jobs = sa.Table(
    "serving_jobs",
    _metadata,
    sa.Column("job_id", sa.String(64), primary_key=True),
    sa.Column("owner", sa.String(64), nullable=False, index=True),
    sa.Column("state", sa.String(16), nullable=False, index=True),
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("task_name", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False, index=True),
    sa.Column("started_at", sa.Double),
    sa.Column("finished_at", sa.Double),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("asked", sa.Integer, nullable=False),
    sa.Column("spent_seconds", sa.Double, nullable=False),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("result", sa.JSON(none_as_null=True)),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("error_status", sa.Integer, nullable=False),
    sa.Column("worker", sa.String(64), nullable=False),
    sa.Column("lease_until", sa.Double, nullable=False),
)
_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up only in a column declared INTEGER
_events = sa.Table(
    "serving_job_events",
    _metadata,
    sa.Column("sequence", _SEQUENCE, primary_key=True, autoincrement=True),
    sa.Column("job_id", sa.String(64), nullable=False, index=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
    sqlite_autoincrement=True,  # a number is never used again, though old events are deleted
)
_NEW = {
    "attempts": 0,
    "asked": 0,
    "spent_seconds": 0.0,
    "cancel_requested": False,
    "error": "",
    "error_status": 0,
    "worker": "",
    "lease_until": 0.0,
}
_OPEN = (str(JobState.QUEUED), str(JobState.RUNNING))
_FINAL = tuple(str(state) for state in JobState if state.is_final)
_SHOWN = tuple(_jobs.c[name] for name in Job.__dataclass_fields__)


class JobStore:
    """See the module's docstring. Every method raises ArchiveError in one line when the database fails."""

    def __init__(self, archive: Archive, *, lease_seconds: float = 15.0, most_attempts: int = 3) -> None:
        """Adds its tables to the archive's database where they are missing."""
        self._archive = archive
        self._lease, self._most_attempts = lease_seconds, most_attempts
        ensure_tables(archive, _metadata)

    # -- for those who ask ----------------------------------------------------------------------------------------

    def submit(self, request: dict[str, Any], *, owner: str, task_name: str, max_waiting: int) -> Job:
        """A new job at the end of the queue. Raises QueueFullError when `max_waiting` wait already."""
        job_id = new_id()
        with self._archive.connection(write=True) as connection:
            waiting = connection.execute(_count(_jobs.c.state == JobState.QUEUED)).scalar_one()
            if waiting >= max_waiting:
                raise QueueFullError(f"{waiting} jobs are waiting, as many as may: try again later")
            row = {
                "job_id": job_id,
                "owner": owner,
                "state": str(JobState.QUEUED),
                "request": request,
                "task_name": task_name,
                "created_at": time.time(),
                **_NEW,
            }
            connection.execute(sa.insert(_jobs).values(row))
            _tell(connection, job_id, JobState.QUEUED, {"ahead": waiting})
            return _job(connection, job_id)

    def get(self, job_id: str) -> Job | None:
        """The job of this id."""
        with self._archive.connection() as connection:
            row = connection.execute(sa.select(*_SHOWN).where(_jobs.c.job_id == job_id)).mappings().first()
        return _from_row(row) if row else None

    def recent(self, *, owner: str | None = None, limit: int = 50) -> list[Job]:
        """Jobs, the newest first; of one owner, or (None) of all."""
        query = sa.select(*_SHOWN).order_by(_jobs.c.created_at.desc()).limit(limit)
        if owner is not None:
            query = query.where(_jobs.c.owner == owner)
        with self._archive.connection() as connection:
            return [_from_row(row) for row in connection.execute(query).mappings()]

    def cancel(self, job_id: str) -> Job | None:
        """A waiting job is cancelled at once, a running one at its next verdict, a finished one stays as it is."""
        with self._archive.connection(write=True) as connection:
            row = connection.execute(_one(job_id)).mappings().first()
            if row is None:
                return None
            if row["state"] == JobState.QUEUED:
                _end(connection, job_id, JobState.CANCELLED, {})
            elif row["state"] == JobState.RUNNING:
                connection.execute(_update(job_id).values(cancel_requested=True))
            return _job(connection, job_id)

    def events(self, job_id: str, after: int = 0) -> list[JobEvent]:
        """What happened to a job after an event's sequence number, in order."""
        query = sa.select(_events).where(_events.c.job_id == job_id, _events.c.sequence > after)
        with self._archive.connection() as connection:
            rows = connection.execute(query.order_by(_events.c.sequence)).mappings().all()
        return [JobEvent(**row) for row in rows]

    def latest(self) -> int:
        """Sequence number of the newest event of any job; 0 when there is none."""
        with self._archive.connection() as connection:
            return connection.execute(sa.select(sa.func.max(_events.c.sequence))).scalar() or 0

    def counts(self) -> dict[str, int]:
        """Number of jobs by state; every state is there."""
        with self._archive.connection() as connection:
            found = connection.execute(sa.select(_jobs.c.state, sa.func.count()).group_by(_jobs.c.state)).all()
        return {str(state): 0 for state in JobState} | {row[0]: row[1] for row in found}

    def open_of(self, owner: str) -> int:
        """Jobs of an owner that wait or run."""
        with self._archive.connection() as connection:
            return connection.execute(_count(_jobs.c.owner == owner, _jobs.c.state.in_(_OPEN))).scalar_one()

    # -- for those who work ---------------------------------------------------------------------------------------

    def claim(self, worker: str) -> Job | None:
        """The oldest job that waits, or whose worker is dead; it belongs to `worker` while the lease lasts."""
        now = time.time()
        with self._archive.connection(write=True) as connection:
            while True:
                is_free = sa.or_(
                    _jobs.c.state == JobState.QUEUED,
                    sa.and_(_jobs.c.state == JobState.RUNNING, _jobs.c.lease_until < now),
                )
                query = sa.select(_jobs).where(is_free).order_by(_jobs.c.created_at).limit(1)
                row = connection.execute(query.with_for_update(skip_locked=True)).mappings().first()
                if row is None:
                    return None
                job_id = row["job_id"]
                if row["cancel_requested"]:
                    _end(connection, job_id, JobState.CANCELLED, {})
                elif row["attempts"] >= self._most_attempts:
                    text = f"its worker died {row['attempts']} times: given up"
                    _end(connection, job_id, JobState.FAILED, {"error": text}, error=text, error_status=500)
                else:
                    connection.execute(
                        _update(job_id).values(
                            state=str(JobState.RUNNING),
                            worker=worker,
                            lease_until=now + self._lease,
                            attempts=row["attempts"] + 1,
                            started_at=row["started_at"] or now,
                        )
                    )
                    _tell(connection, job_id, JobState.RUNNING, {"attempt": row["attempts"] + 1})
                    return _job(connection, job_id)

    def renew(
        self, job_id: str, worker: str, *, asked: int, spent_seconds: float
    ) -> Literal["mine", "cancelled", "lost"]:
        """A sign of life, with how far the work is; says whether it shall go on."""
        with self._archive.connection(write=True) as connection:
            changed = connection.execute(
                _update(job_id, worker).values(
                    lease_until=time.time() + self._lease, asked=asked, spent_seconds=spent_seconds
                )
            )
            if changed.rowcount == 0:
                return "lost"
            wanted = connection.execute(sa.select(_jobs.c.cancel_requested).where(_jobs.c.job_id == job_id)).scalar()
        return "cancelled" if wanted else "mine"

    def add_event(self, job_id: str, worker: str, kind: str, data: dict[str, Any]) -> bool:
        """Something that happened; False when the job is no longer this worker's."""
        with self._archive.connection(write=True) as connection:
            if connection.execute(_update(job_id, worker).values(worker=worker)).rowcount == 0:
                return False
            _tell(connection, job_id, kind, data)
        return True

    def finish(
        self,
        job_id: str,
        worker: str,
        state: JobState,
        *,
        result: dict[str, Any] | None = None,
        error: str = "",
        error_status: int = 0,
    ) -> bool:
        """The end of a job and its last event, together; False when it is no longer this worker's."""
        with self._archive.connection(write=True) as connection:
            if connection.execute(_update(job_id, worker).values(worker=worker)).rowcount == 0:
                return False
            data = {"result": result} if result is not None else {"error": error} if error else {}
            _end(connection, job_id, state, data, result=result, error=error, error_status=error_status)
        return True

    def release(self, worker: str) -> int:
        """Give back what a worker holds, when it ends in good order; returns how many jobs. It costs no attempt."""
        with self._archive.connection(write=True) as connection:
            held = _jobs.c.worker == worker
            running = _jobs.c.state == JobState.RUNNING
            job_ids = connection.execute(sa.select(_jobs.c.job_id).where(held, running)).scalars().all()
            for job_id in job_ids:
                values = {"state": str(JobState.QUEUED), "worker": "", "attempts": _jobs.c.attempts - 1}
                connection.execute(_update(job_id, worker).values(values))
                _tell(connection, job_id, JobState.QUEUED, {"reason": "the service is restarting"})
        return len(job_ids)

    def prune(self, keep: int) -> int:
        """Forget finished jobs beyond the newest `keep`, with their events; returns how many."""
        final = _jobs.c.state.in_(_FINAL)
        old = sa.select(_jobs.c.job_id).where(final).order_by(_jobs.c.finished_at.desc()).offset(keep).limit(-1)
        with self._archive.connection(write=True) as connection:
            if connection.dialect.name != "sqlite":
                old = old.limit(None)  # SQLite wants a limit before an offset; for PostgreSQL -1 is none
            job_ids = connection.execute(old).scalars().all()
            for job_id in job_ids:
                connection.execute(sa.delete(_events).where(_events.c.job_id == job_id))
                connection.execute(sa.delete(_jobs).where(_jobs.c.job_id == job_id))
        return len(job_ids)


def _count(*filters: sa.ColumnElement[bool]) -> sa.Select[int]:
    return sa.select(sa.func.count()).select_from(_jobs).where(*filters)


def _one(job_id: str) -> sa.Select[Any]:
    return sa.select(_jobs).where(_jobs.c.job_id == job_id).with_for_update()


def _update(job_id: str, worker: str | None = None) -> sa.Update:
    update = sa.update(_jobs).where(_jobs.c.job_id == job_id)
    if worker is None:
        return update
    return update.where(_jobs.c.worker == worker, _jobs.c.state == JobState.RUNNING)


def _tell(connection: sa.Connection, job_id: str, kind: str, data: dict[str, Any]) -> None:
    connection.execute(sa.insert(_events).values(job_id=job_id, kind=str(kind), data=data))


def _end(connection: sa.Connection, job_id: str, state: JobState, data: dict[str, Any], **values: Any) -> None:
    connection.execute(_update(job_id).values(state=str(state), finished_at=time.time(), worker="", **values))
    _tell(connection, job_id, state, data)


def _job(connection: sa.Connection, job_id: str) -> Job:
    return _from_row(connection.execute(sa.select(*_SHOWN).where(_jobs.c.job_id == job_id)).mappings().one())


def _from_row(row: Any) -> Job:
    return Job(**{**row, "state": JobState(row["state"]), "cancel_requested": bool(row["cancel_requested"])})
