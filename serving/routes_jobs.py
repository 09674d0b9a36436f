"""Searches as jobs: POST /v1/optimize, and what becomes of them under /v1/jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from serving.gate import api_key, owner, require, sees_all
from serving.job_runner import task_of
from serving.job_types import Job, JobEvent, JobState, QueueFullError
from serving.messages import JobReply, OptimizeReply, OptimizeRequest, RequestError, job_reply, parse_request
from serving.watcher import Watcher
from tasks.errors import TaskError

if TYPE_CHECKING:
    from serving.api import Site

KEEPALIVE_SECONDS = 15.0
"""Silence after which a comment is sent, so that proxies keep the stream open."""
LISTED = 50


def add_routes(api: FastAPI, site: Site) -> None:
    """Add the routes of this file."""
    store, watcher = site.store, Watcher(site.store)

    async def mine(job_id: str) -> Job:
        """The job, unless it is another key's: then it is not there."""
        job = await asyncio.to_thread(store.get, job_id)
        if job is None or not (sees_all() or job.owner == owner()):
            raise RequestError(404, "no such job")
        return job

    @api.post(
        "/v1/optimize",
        status_code=202,
        response_model=JobReply,
        responses={200: {"model": OptimizeReply, "description": "With wait=true: the result."}},
        openapi_extra={
            "requestBody": {"content": {"application/json": {"schema": OptimizeRequest.model_json_schema()}}}
        },
    )
    async def optimize(
        request: Request, wait: bool = Query(False, description="Answer when the job is done; leaving cancels it.")
    ) -> JSONResponse:
        """Look for a faster kernel for a task, as a job. Only a verified kernel is ever its result."""
        require("optimize")
        wanted = parse_request(await request.body(), site.settings)
        try:
            task = task_of(wanted)
        except TaskError as error:
            raise RequestError(422, str(error)) from None
        await _refuse_too_many(site)
        try:
            job = await asyncio.to_thread(
                store.submit,
                wanted.model_dump(mode="json"),
                owner=owner(),
                task_name=task.name,
                max_waiting=site.settings.max_queued,
            )
        except QueueFullError as error:
            site.metrics.refused.labels("jobs").inc()
            raise RequestError(503, str(error)) from None
        headers = {"Location": f"/v1/jobs/{job.job_id}"}
        if not wait:
            return JSONResponse(job_reply(job).model_dump(mode="json"), 202, headers)
        return _final_answer(await _wait_for(site, watcher, job.job_id, request), headers)

    @api.get("/v1/jobs", response_model=list[JobReply])
    async def jobs() -> list[JobReply]:
        """The newest jobs of this key."""
        require("optimize")
        found = await asyncio.to_thread(store.recent, owner=None if sees_all() else owner(), limit=LISTED)
        return [job_reply(job) for job in found]

    @api.get("/v1/jobs/{job_id}")
    async def job(job_id: str) -> JobReply:
        """A job, with its result when it is done."""
        require("optimize")
        return job_reply(await mine(job_id))

    @api.delete("/v1/jobs/{job_id}")
    async def cancel(job_id: str) -> JobReply:
        """Cancel a job: at once when it waits, at its next verdict when it is being worked on."""
        require("optimize")
        await mine(job_id)
        cancelled = await asyncio.to_thread(store.cancel, job_id)
        if cancelled is None:
            raise RequestError(404, "no such job")
        return job_reply(cancelled)

    @api.get(
        "/v1/jobs/{job_id}/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}},
    )
    async def events(request: Request, job_id: str, after: int = Query(0, ge=0)) -> StreamingResponse:
        """What happens to a job as it happens: each verdict, each change of state, and the result as the last event.

        A client that comes back says in Last-Event-ID (or `after`) which event it saw last.
        """
        require("optimize")
        await mine(job_id)
        last = request.headers.get("last-event-id", "")
        start = int(last) if last.isdecimal() else after
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_events(site, watcher, job_id, start), headers=headers, media_type="text/event-stream")


async def _refuse_too_many(site: Site) -> None:
    """A key's `concurrent` holds for its open jobs too: 429."""
    key = api_key.get()
    if key is None:
        return
    number = await asyncio.to_thread(site.store.open_of, key.key_id)
    if number >= key.concurrent:
        raise RequestError(429, f"{number} jobs of this key wait or run, as many as may: wait for one, or cancel one")


async def _wait_for(site: Site, watcher: Watcher, job_id: str, request: Request) -> Job:
    """The job when it has ended. A client that goes away takes its job with it."""
    try:
        while True:
            seen = watcher.position
            job = await asyncio.to_thread(site.store.get, job_id)
            if job is None or job.state.is_final:
                break
            await watcher.changed(seen, 1.0)
            if await request.is_disconnected():
                raise asyncio.CancelledError
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.to_thread(site.store.cancel, job_id))
        raise
    if job is None:
        raise RequestError(404, "the job is no longer there")
    return job


def _final_answer(job: Job, headers: dict[str, str]) -> JSONResponse:
    if job.state is JobState.DONE:
        return JSONResponse(job.result, 200, headers)
    if job.state is JobState.CANCELLED:
        return JSONResponse({"error": "the job was cancelled"}, 409, headers)
    return JSONResponse({"error": job.error}, job.error_status or 500, headers)


async def _events(site: Site, watcher: Watcher, job_id: str, after: int) -> AsyncIterator[str]:
    quiet = 0.0
    while True:
        position = watcher.position
        found = await asyncio.to_thread(site.store.events, job_id, after)
        for event in found:
            after = event.sequence
            yield _frame(event)
            if event.kind in (JobState.DONE, JobState.FAILED, JobState.CANCELLED):
                return
        if not found:
            job = await asyncio.to_thread(site.store.get, job_id)
            if job is None or job.state.is_final:  # the client has seen the end before
                return
            quiet += watcher.patience
            if quiet >= KEEPALIVE_SECONDS:
                quiet = 0.0
                yield ": still here\n\n"
        else:
            quiet = 0.0
        await watcher.changed(position, watcher.patience)


def _frame(event: JobEvent) -> str:
    data: dict[str, Any] = {"job": event.job_id, **event.data}
    # JSON has no line breaks: one data line is the whole.
    return f"id: {event.sequence}\nevent: {event.kind}\ndata: {json.dumps(data)}\n\n"
