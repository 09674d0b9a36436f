"""The HTTP service on Ray Serve: POST /v1/optimize, GET /healthz.

    curl -s http://127.0.0.1:8000/v1/optimize -d '{"task_name": "softmax", "max_candidates": 4}'

Two deployments. The *front* checks requests, says 503 when enough are waiting, and answers /healthz at any time. The
*optimizer* holds the rollout engine, the judges and the archive, and works on one request after the other, since a
timing must have the machine to itself. Errors are {"error": "one line"} with a status of 4xx or 5xx.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from ray import serve
from starlette.exceptions import HTTPException

from serving.messages import OptimizeReply, OptimizeRequest, RequestError, parse_request, reply_of
from warpsmith import WarpsmithError, __version__

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle

    from actors.settings import EvaluatorSettings, RolloutSettings, Timeouts
    from judge.settings import JudgeSettings
    from search.settings import SearchSettings
    from serving.settings import ServingSettings

HEALTH_SECONDS = 5.0
SPARE_REQUESTS = 16
"""Requests that the front takes beyond those that may wait: health checks, and those that it refuses."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the service is made of; travels to its processes."""

    model_dir: Path
    """What learner.pretrained.prepare_model returned."""
    archive_url: str
    seed: int
    serving: ServingSettings
    rollout: RolloutSettings
    evaluators: EvaluatorSettings
    judge: JudgeSettings
    search: SearchSettings
    timeouts: Timeouts


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Between the two deployments failures travel as values: Ray would wrap an exception into a page of text."""

    status: int
    body: dict[str, Any]


@serve.deployment(name="optimizer")
class Optimizer:
    """Searches, one at a time. Its pools are its own: they end with it."""

    def __init__(self, service: Service) -> None:
        from actors.pools import EvaluatorPool, RolloutPool
        from archive.store import Archive
        from serving.optimizer import Workbench

        self._evaluators = EvaluatorPool(service.judge, service.evaluators, service.timeouts)
        self._rollout = RolloutPool(service.model_dir, service.rollout, service.timeouts, seed=service.seed)
        self._evaluators.wait_ready()
        self._rollout.wait_ready()
        self._bench = Workbench(
            rollout=self._rollout,
            evaluators=self._evaluators,
            archive=Archive(service.archive_url),
            search=service.search,
            prompts_per_round=service.rollout.actors,
            seed=service.seed,
        )
        self._turn = asyncio.Lock()

    async def optimize(self, request: OptimizeRequest) -> Answer:
        """The answer to a checked request. When the client goes away the search stops at its next verdict."""
        stop = threading.Event()
        async with self._turn:
            work = asyncio.ensure_future(asyncio.to_thread(self._optimize, request, stop))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                stop.set()
                await asyncio.wait([work])  # the pools serve one search at a time
                raise

    def _optimize(self, request: OptimizeRequest, stop: threading.Event) -> Answer:
        from search.errors import SearchError
        from serving.optimizer import optimize_task
        from tasks.errors import TaskError
        from tasks.loader import parse_task, suite_task

        try:
            # By name only from the suite: a path would let a client read this machine's files.
            task = suite_task(request.task_name) if request.task_name else parse_task(request.task_source or "")
            result = optimize_task(
                task,
                self._bench,
                max_candidates=request.max_candidates or 1,
                budget_seconds=request.budget_seconds,
                should_stop=stop.is_set,
            )
        except (TaskError, SearchError) as error:  # the request's task cannot be used
            return Answer(status=422, body={"error": " ".join(str(error).split())})
        except WarpsmithError as error:
            return Answer(status=500, body={"error": " ".join(str(error).split())})
        return Answer(status=200, body=reply_of(result).model_dump(mode="json"))

    async def health(self) -> int:
        """The policy's version; answering is the sign of life."""
        return self._rollout.policy_version

    def __del__(self) -> None:
        for name in ("_rollout", "_evaluators"):
            if hasattr(self, name):
                getattr(self, name).close()


api = FastAPI(title="warpsmith", version=__version__)


@api.exception_handler(RequestError)
async def _say_request_error(request: Request, error: RequestError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=error.status)


@api.exception_handler(HTTPException)
async def _say_http_error(request: Request, error: HTTPException) -> JSONResponse:
    return JSONResponse({"error": str(error.detail)}, status_code=error.status_code, headers=error.headers)


async def read_body(request: Request, most: int) -> bytes:
    """The body; RequestError 413 as soon as it is longer than `most` bytes, whatever its header says."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise RequestError(413, f"the body is longer than {most} bytes")
    return body


async def _value(response: Any) -> Any:
    return await response


# serve.ingress copies the routes when it decorates: what they use must stand above them.
@serve.deployment(name="front")
@serve.ingress(api)
class Front:
    """Speaks HTTP."""

    def __init__(self, optimizer: DeploymentHandle, settings: ServingSettings) -> None:
        self._optimizer = optimizer
        self._settings = settings
        self._inside = 0

    @api.post(
        "/v1/optimize",
        response_model=OptimizeReply,
        openapi_extra={
            "requestBody": {"content": {"application/json": {"schema": OptimizeRequest.model_json_schema()}}}
        },
    )
    async def optimize(self, request: Request) -> JSONResponse:
        """Look for a faster kernel for a task; only a verified one is returned."""
        wanted = parse_request(await read_body(request, self._settings.max_body_bytes), self._settings)
        if self._inside > self._settings.max_queued:
            text = f"{self._inside} requests are being worked on or waiting: try again later"
            return JSONResponse({"error": text}, status_code=503, headers={"Retry-After": "60"})
        self._inside += 1
        try:
            answer = await self._optimizer.optimize.remote(wanted)
        finally:
            self._inside -= 1
        return JSONResponse(answer.body, status_code=answer.status)

    @api.get("/healthz")
    async def healthz(self) -> JSONResponse:
        """200 while the optimizer answers, 503 otherwise."""
        try:
            version = await asyncio.wait_for(_value(self._optimizer.health.remote()), HEALTH_SECONDS)
        except Exception as error:  # a dead replica shows as one of many of Ray's errors
            return JSONResponse({"status": "down", "error": type(error).__name__}, status_code=503)
        return JSONResponse({"status": "ok", "policy_version": version, "requests": self._inside})


def build_app(service: Service) -> Application:
    """The application, for ray.serve.run."""
    inside = service.serving.max_queued + 1
    optimizer = Optimizer.options(  # type: ignore[attr-defined]  # the decorator makes it a Deployment
        max_ongoing_requests=inside + SPARE_REQUESTS,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=service.timeouts.shutdown,
    ).bind(service)
    front = Front.options(max_ongoing_requests=inside + SPARE_REQUESTS, ray_actor_options={"num_cpus": 0})  # type: ignore[attr-defined]
    return front.bind(optimizer, service.serving)
