"""A front on a port of its own, over scripted deployments: what goes over the wire is real, what answers is not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from archive.store import Archive
from serving.backend import BackendError, Health
from serving.generation import Answer, Generation, Piece, Refusal
from serving.job_store import JobStore
from serving.keys import KeyStore
from serving.messages import JudgeRequest
from serving.settings import ServingSettings


@dataclass
class ScriptedBackend:
    """Answers with the words of the last message, one a piece."""

    asked: list[Generation] = field(default_factory=list)
    pause: float = 0.0
    inside: int = 0
    most_inside: int = 0
    cancelled: int = 0
    down: bool = False

    def _words(self, generation: Generation) -> list[str]:
        text = generation.messages[-1]["content"] if generation.messages else str(generation.prompt)
        return text.split()[: generation.max_tokens]

    async def complete(self, generation: Generation) -> list[Piece] | Refusal:
        pieces: dict[int, list[Piece]] = {}
        async for piece in self.stream(generation):
            if isinstance(piece, Refusal):
                return piece
            pieces.setdefault(piece.index, []).append(piece)
        return [
            Piece(
                index=index,
                text="".join(one.text for one in parts),
                finish_reason=parts[-1].finish_reason,
                prompt_tokens=parts[-1].prompt_tokens,
                completion_tokens=parts[-1].completion_tokens,
                policy_version=7,
            )
            for index, parts in sorted(pieces.items())
        ]

    async def stream(self, generation: Generation) -> AsyncIterator[Piece | Refusal]:
        self.asked.append(generation)
        if self.down:
            raise BackendError("the policy does not answer (RayActorError): try again")
        words = self._words(generation)
        if words == ["refuse"]:
            yield Refusal(status=400, message="this model's context is 9 tokens", param="messages")
            return
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            for number, word in enumerate(words):
                for index in range(generation.n):
                    last = number == len(words) - 1
                    yield Piece(
                        index=index,
                        text=word + " " * (not last),
                        finish_reason="stop" if last else None,
                        prompt_tokens=5,
                        completion_tokens=number + 1,
                        policy_version=7,
                    )
                await asyncio.sleep(self.pause)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1

    async def judge(self, request: JudgeRequest) -> Answer:
        await asyncio.sleep(self.pause)
        if self.down:
            raise BackendError("the judge does not answer (RayActorError): try again")
        return Answer(status=200, body={"status": "correct", "message": request.code})

    async def health(self) -> Health:
        if self.down:
            raise BackendError("the policy does not answer (RayActorError): try again")
        return Health(policy_version=7, optimizer=True)


@dataclass
class Front:
    """A running front."""

    url: str
    backend: ScriptedBackend
    archive: Archive
    store: JobStore
    keys: KeyStore
    log: Path

    def call(self, method: str, path: str, *, key: str = "", **options: Any) -> Any:
        import httpx

        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= options.pop("headers", {})
        return httpx.request(method, self.url + path, headers=headers, timeout=30, **options)


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend()


@pytest.fixture
def start_front(tmp_path: Path) -> Iterator[Callable[..., Front]]:
    """Starts a front with the given settings; ends it after the test."""
    import uvicorn

    from serving.api import build_api

    servers: list[tuple[Any, threading.Thread]] = []
    archives: list[Archive] = []

    def start(backend: ScriptedBackend | None = None, **settings: Any) -> Front:
        backend = backend or ScriptedBackend()
        archive = Archive(str(tmp_path / "archive.db"))
        archives.append(archive)
        log = tmp_path / "access.jsonl"
        chosen = ServingSettings(access_log=str(log), **settings)
        keys, store = KeyStore(archive), JobStore(archive)
        app = build_api(backend, chosen, archive, model_name="tiny")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        end = time.monotonic() + 20
        while not server.started and time.monotonic() < end:
            time.sleep(0.01)
        return Front(f"http://127.0.0.1:{port}", backend, archive, store, keys, log)

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)
    for archive in archives:
        archive.close()
