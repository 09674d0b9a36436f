"""OpenAI's routes on the policy: /v1/chat/completions, /v1/completions, /v1/models; and new weights."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from archive.types import new_id
from serving.gate import require
from serving.generation import Piece, Refusal
from serving.messages import RequestError, parse_body
from serving.openai_messages import ChatRequest, CompletionRequest, OpenAIError, ReplyWriter, parse_openai
from serving.turnstile import Turnstile
from warpsmith import WarpsmithError

if TYPE_CHECKING:
    from serving.api import Site


class WeightsRequest(BaseModel):
    """Body of PUT /v1/weights: a version that a learner has published."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy_version: int = Field(ge=0)
    path: str
    """Its folder, as the engines' machines see it."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


def add_routes(api: FastAPI, site: Site) -> None:
    """Add the routes of this file."""
    turnstile = Turnstile("completion", site.settings.max_completing, site.metrics)
    began = int(time.time())
    model = {"id": site.model_name, "object": "model", "created": began, "owned_by": "warpsmith"}

    @api.post("/v1/chat/completions", openapi_extra=_body_schema(ChatRequest))
    async def chat_completions(request: Request) -> Any:
        """A chat's next turn by the policy, as OpenAI's clients ask for it."""
        require("complete")
        return await answer(parse_openai(ChatRequest, await request.body()))

    @api.post("/v1/completions", openapi_extra=_body_schema(CompletionRequest))
    async def completions(request: Request) -> Any:
        """A text continued by the policy, as OpenAI's clients ask for it."""
        require("complete")
        return await answer(parse_openai(CompletionRequest, await request.body()))

    @api.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The policy's name."""
        return {"object": "list", "data": [model]}

    @api.get("/v1/models/{name:path}")
    async def one_model(name: str) -> dict[str, Any]:
        """The policy, by its name."""
        if name != site.model_name:
            raise _no_model(name, site.model_name)
        return model

    @api.put("/v1/weights", status_code=202, openapi_extra=_body_schema(WeightsRequest))
    async def put_weights(request: Request) -> JSONResponse:
        """Serve other weights: engines take them within seconds, and no request fails for it. Needs scope admin."""
        require("admin")
        from learner.types import WeightsVersion
        from serving.policy import require_fit

        wanted = parse_body(WeightsRequest, await request.body())
        version = WeightsVersion(**wanted.model_dump())
        try:
            await asyncio.to_thread(require_fit, version, Path(site.model_dir))
        except WarpsmithError as error:
            raise RequestError(422, str(error)) from None
        await asyncio.to_thread(site.board.put, version)
        return JSONResponse(wanted.model_dump(), 202)

    async def answer(wanted: ChatRequest | CompletionRequest) -> Any:
        if wanted.model != site.model_name:
            raise _no_model(wanted.model, site.model_name)
        reply_id = new_id()
        generations = wanted.generations(reply_id)
        writer = ReplyWriter(wanted, reply_id, int(time.time()), len(generations))
        with ExitStack() as stack:
            stack.enter_context(turnstile)
            if not wanted.stream:
                tasks = [asyncio.ensure_future(site.backend.complete(one)) for one in generations]
                try:
                    found = await asyncio.gather(*tasks)
                finally:
                    for task in tasks:
                        task.cancel()
                body = writer.whole([_accepted(pieces) for pieces in found])
                _count(site, body["usage"])
                return JSONResponse(body)
            # The first piece decides the status: a refusal must not come inside a stream that began with 200.
            pieces = _merged([site.backend.stream(one) for one in generations])
            asked = time.monotonic()
            first = await anext(pieces, None)
            site.metrics.first_token.observe(time.monotonic() - asked)
            if first is not None and isinstance(first[1], Refusal):
                await pieces.aclose()
                _accepted(first[1])
            events = _events(site, writer, first, pieces, wanted.wants_usage)
            held = stack.pop_all()
        return _Held(events, held)


class _Held(StreamingResponse):
    """A stream that gives its place in the turnstile back at its end, also when it could not begin."""

    def __init__(self, events: AsyncIterator[str], held: ExitStack) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._held = held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


async def _events(site: Site, writer: ReplyWriter, first: Any, pieces: Any, wants_usage: bool) -> AsyncIterator[str]:
    """A stream's events."""
    try:
        if first is not None:
            for body in writer.chunks(*first):
                yield _event(body)
        async for number, piece in pieces:
            if isinstance(piece, Refusal):
                yield _event(OpenAIError(piece.status, piece.message).body())
                return
            for body in writer.chunks(number, piece):
                yield _event(body)
    except Exception as error:  # the status has gone out: only the stream can say it
        yield _event(OpenAIError(500, f"the engine was lost: {type(error).__name__}").body())
        return
    finally:
        await pieces.aclose()
    usage = writer.usage_chunk()
    _count(site, usage["usage"])
    if wants_usage:
        yield _event(usage)
    yield "data: [DONE]\n\n"


async def _merged(streams: list[AsyncIterator[Piece | Refusal]]) -> Any:
    """(number, piece) of several streams as they come."""
    if len(streams) == 1:
        async for piece in streams[0]:
            yield 0, piece
        return
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def pump(number: int, stream: AsyncIterator[Piece | Refusal]) -> None:
        try:
            async for piece in stream:
                await queue.put((number, piece))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(pump(number, stream)) for number, stream in enumerate(streams)]
    try:
        left = len(streams)
        while left:
            item = await queue.get()
            if item is None:
                left -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()


def _accepted(pieces: list[Piece] | Refusal) -> list[Piece]:
    if isinstance(pieces, Refusal):
        raise OpenAIError(pieces.status, pieces.message, param=pieces.param)
    return pieces


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


def _count(site: Site, usage: dict[str, int]) -> None:
    site.metrics.tokens.labels("prompt").inc(usage["prompt_tokens"])
    site.metrics.tokens.labels("completion").inc(usage["completion_tokens"])


def _no_model(name: str, known: str) -> OpenAIError:
    shown = " ".join(name.split())[:80]
    return OpenAIError(404, f"no model {shown!r} here: it is {known!r}", param="model", code="model_not_found")


def _body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": kind.model_json_schema()}}}}
