"""The HTTP interface, without Ray: build_api makes the whole ASGI application over a Backend and the database.

Errors are {"error": "one line"}, and in OpenAI's form on OpenAI's routes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from archive.store import Archive
from serving import routes_jobs, routes_openai
from serving.backend import Backend, BackendError
from serving.gate import Gate, access_logger, error_for, request_id, require
from serving.job_store import JobStore
from serving.keys import CachedKeys, KeyStore
from serving.messages import JudgeRequest, RequestError, parse_body
from serving.metrics import CONTENT_TYPE, Metrics
from serving.openai_messages import OpenAIError
from serving.pages import ASSETS, PAGE_POLICY, api_page, asset, web_page
from serving.settings import ServingSettings
from serving.turnstile import Turnstile
from serving.weights_board import WeightsBoard
from warpsmith import WarpsmithError, __version__

HEALTH_SECONDS = 5.0
RETRY_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the routes work with."""

    backend: Backend
    settings: ServingSettings
    store: JobStore
    board: WeightsBoard
    metrics: Metrics
    model_name: str
    model_dir: str


def build_api(
    backend: Backend, settings: ServingSettings, archive: Archive, *, model_name: str, model_dir: str = ""
) -> Any:
    """The ASGI application.

    Args:
        model_name: what clients call the policy.
        model_dir: the model's folder; new weights are checked against it.
    """
    metrics = Metrics()
    site = Site(
        backend=backend,
        settings=settings,
        store=JobStore(archive, lease_seconds=settings.job_lease_seconds, most_attempts=settings.job_attempts),
        board=WeightsBoard(archive),
        metrics=metrics,
        model_name=model_name,
        model_dir=model_dir,
    )
    api = FastAPI(title="warpsmith", version=__version__, docs_url=None, redoc_url=None)
    _add_error_forms(api)
    _add_pages(api, site)
    _add_judge(api, site)
    routes_jobs.add_routes(api, site)
    routes_openai.add_routes(api, site)
    gate = Gate(api, settings, CachedKeys(KeyStore(archive)), metrics, access_logger(settings.access_log))
    if not settings.cors_origins:
        return gate
    return CORSMiddleware(
        gate,
        allow_origins=list(settings.cors_origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "X-Request-ID"],
        expose_headers=["X-Request-ID", "Retry-After"],
    )


def _add_error_forms(api: FastAPI) -> None:
    @api.exception_handler(RequestError)
    async def say_request_error(request: Request, error: RequestError) -> JSONResponse:
        headers = {"Retry-After": str(RETRY_SECONDS)} if error.status in (429, 503) else None
        return JSONResponse(error_for(request.url.path, error.status, str(error)), error.status, headers)

    @api.exception_handler(OpenAIError)
    async def say_openai_error(request: Request, error: OpenAIError) -> JSONResponse:
        headers = {"Retry-After": str(RETRY_SECONDS)} if error.status in (429, 503) else None
        return JSONResponse(error.body(), error.status, headers)

    @api.exception_handler(HTTPException)
    async def say_http_error(request: Request, error: HTTPException) -> JSONResponse:
        body = error_for(request.url.path, error.status_code, str(error.detail))
        return JSONResponse(body, error.status_code, error.headers)

    @api.exception_handler(BackendError)
    async def say_backend_error(request: Request, error: BackendError) -> JSONResponse:
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return JSONResponse(error_for(request.url.path, 503, str(error)), 503, headers)

    @api.exception_handler(Exception)
    async def say_unexpected(request: Request, error: Exception) -> JSONResponse:
        text = f"unexpected {type(error).__name__}: the log has request {request_id.get()}"
        return JSONResponse(error_for(request.url.path, 500, text), 500)

    @api.exception_handler(WarpsmithError)
    async def say_our_error(request: Request, error: WarpsmithError) -> JSONResponse:
        text = " ".join(str(error).split())
        return JSONResponse(error_for(request.url.path, 503, text), 503, {"Retry-After": str(RETRY_SECONDS)})


def _add_pages(api: FastAPI, site: Site) -> None:
    @api.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(web_page(site.settings), headers=PAGE_POLICY)

    @api.get("/page.{kind}", include_in_schema=False)
    async def page_asset(kind: str) -> Response:
        name = f"page.{kind}"
        if name not in ASSETS:
            raise HTTPException(404, "Not Found")
        return Response(asset(name), media_type=ASSETS[name])

    @api.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(api_page(api.openapi()), headers=PAGE_POLICY)

    @api.get("/healthz")
    async def healthz() -> JSONResponse:
        """200 while the policy and the optimizer answer, 503 otherwise."""
        try:
            health = await asyncio.wait_for(site.backend.health(), HEALTH_SECONDS)
        except (BackendError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            return JSONResponse({"status": "down", "error": text}, 503, {"Retry-After": str(RETRY_SECONDS)})
        site.metrics.policy_version.set(health.policy_version)
        counts = await asyncio.to_thread(site.store.counts)
        body = {
            "status": "ok" if health.optimizer else "down",
            "policy_version": health.policy_version,
            "jobs": {state: counts[state] for state in ("queued", "running")},
        }
        return JSONResponse(body, 200 if health.optimizer else 503)

    @api.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        for state, count in (await asyncio.to_thread(site.store.counts)).items():
            site.metrics.jobs.labels(state).set(count)
        return Response(site.metrics.text(), media_type=CONTENT_TYPE)


def _add_judge(api: FastAPI, site: Site) -> None:
    turnstile = Turnstile("judge", site.settings.max_judging, site.metrics)

    @api.post(
        "/v1/judge",
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": JudgeRequest.model_json_schema()}}}},
    )
    async def judge(request: Request) -> JSONResponse:
        """The judge's verdict on a candidate: correct or not, and how fast with its 99% interval."""
        require("judge")
        wanted = parse_body(JudgeRequest, await request.body())
        with turnstile:
            answer = await site.backend.judge(wanted)
        if answer.status == 200:
            site.metrics.verdicts.labels(answer.body["status"]).inc()
        return JSONResponse(answer.body, answer.status)
