"""What every request passes: an id, the size of its body, its key and that key's limits; and a line in the log.

A plain ASGI layer around the application, so that it holds for streams too: a key's place is taken until the last byte
has gone. Nothing that a client sends is logged but its method, its route and its request id.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import math
import re
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from archive.types import new_id
from serving.keys import ApiKey, CachedKeys, Limiter
from serving.messages import RequestError
from serving.metrics import Metrics
from serving.openai_messages import error_body
from serving.settings import ServingSettings
from warpsmith import WarpsmithError

OPEN_PATHS = frozenset({"/", "/page.js", "/page.css", "/docs", "/openapi.json", "/healthz", "/metrics"})
"""No key is asked for here: they show nothing of anybody's work."""
OPENAI_PATHS = ("/v1/chat/", "/v1/completions", "/v1/models")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
api_key: contextvars.ContextVar[ApiKey | None] = contextvars.ContextVar("api_key", default=None)
"""Of the request at hand; None where keys are not asked for."""


def error_for(path: str, status: int, message: str) -> dict[str, Any]:
    """The body of an error, in the form that the route's clients read."""
    if path.startswith(OPENAI_PATHS):
        return error_body(status, message)
    return {"error": message}


def require(scope: str) -> None:
    """Raises RequestError 403 unless the request's key has the scope."""
    key = api_key.get()
    if key is not None and not key.may(scope):
        raise RequestError(403, f"this key may not do that: it lacks the scope {scope}")


def owner() -> str:
    """Whose the request's jobs are."""
    key = api_key.get()
    return "" if key is None else key.key_id


def sees_all() -> bool:
    """Whether other keys' jobs are shown too."""
    key = api_key.get()
    return key is None or key.may("admin")


def access_logger(file: str) -> logging.Logger:
    """Logger of one JSON line a request; to a file, or to stderr."""
    logger = logging.getLogger("warpsmith.access")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    handler: logging.Handler = logging.StreamHandler()
    if file:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    return logger


class Gate:
    """The layer; see the module's docstring."""

    def __init__(
        self, app: Any, settings: ServingSettings, keys: CachedKeys, metrics: Metrics, logger: logging.Logger
    ) -> None:
        self._app, self._settings, self._keys = app, settings, keys
        self._metrics, self._log = metrics, logger
        self._limiter = Limiter()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        asked_id = headers.get(b"x-request-id", b"").decode("latin-1")
        one = _Request(
            scope,
            send,
            asked_id if _REQUEST_ID.fullmatch(asked_id) else new_id(),
            log=self._log,
            metrics=self._metrics,
        )
        id_token = request_id.set(one.request_id)
        key_token = api_key.set(None)
        key: ApiKey | None = None
        entered = False
        self._metrics.inside.inc()
        try:
            length = headers.get(b"content-length", b"")
            if length.isdigit() and int(length) > self._settings.max_body_bytes:
                raise RequestError(413, f"the body is longer than {self._settings.max_body_bytes} bytes")
            key = await self._identify(scope, headers)
            if key is not None:
                wait = self._limiter.enter(key)
                if wait:
                    await one.refuse(429, "too many requests with this key: try again later", retry_after=wait)
                    return
                entered = True
                api_key.set(key)
                one.key_id = key.key_id
            await self._app(scope, self._capped(receive), one.send)
        except RequestError as error:
            await one.refuse(error.status, str(error))
        except asyncio.CancelledError:
            one.status = 499  # the client has gone
            raise
        except Exception as error:
            self._log.error(json.dumps({"request_id": one.request_id, "error": type(error).__name__}))
            logging.getLogger("warpsmith.serving").exception("request %s", one.request_id)
            await one.refuse(500, f"unexpected {type(error).__name__}: the log has request {one.request_id}")
        finally:
            if entered and key is not None:
                self._limiter.leave(key)
            self._metrics.inside.dec()
            one.close()
            api_key.reset(key_token)
            request_id.reset(id_token)

    async def _identify(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> ApiKey | None:
        if scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS":
            return None
        settings = self._settings
        required = settings.require_key == "always"
        try:
            if settings.require_key == "auto":
                # The caller's address too: Ray Serve may listen elsewhere than our settings say (configs/serve.yaml).
                caller = (scope.get("client") or ("",))[0]
                is_far = settings.host not in LOOPBACK or caller not in LOOPBACK
                required = is_far or await asyncio.to_thread(self._keys.any)
            if not required:
                return None
            scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            key = None
            if scheme.lower() == "bearer" and secret:
                key = await asyncio.to_thread(self._keys.find, secret.strip())
        except WarpsmithError as error:  # never open because the database is away
            raise RequestError(503, f"keys cannot be read: {error}") from None
        if key is None:
            raise RequestError(401, "a valid API key is needed: Authorization: Bearer KEY")
        return key

    def _capped(self, receive: Any) -> Any:
        """The body again, refused as soon as it is too long, whatever its header says."""
        seen = 0

        async def capped() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._settings.max_body_bytes:
                raise RequestError(413, f"the body is longer than {self._settings.max_body_bytes} bytes")
            return message

        return capped


class _Request:
    """One request's answer on its way out."""

    def __init__(
        self, scope: MutableMapping[str, Any], send: Any, request_id: str, *, log: logging.Logger, metrics: Metrics
    ) -> None:
        self.scope, self.request_id = scope, request_id
        self._send, self._log, self._metrics = send, log, metrics
        self._began = time.monotonic()
        self.status = 0
        self.key_id = ""

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", []), *self._headers()]}
        await self._send(message)

    async def refuse(self, status: int, text: str, *, retry_after: float = 0.0) -> None:
        """An error before the application has answered; afterwards the connection can only be cut."""
        if self.status:
            return
        body = json.dumps(error_for(self.scope["path"], status, text)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if retry_after or status == 503:
            headers.append((b"retry-after", str(max(1, math.ceil(retry_after))).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def close(self) -> None:
        seconds = time.monotonic() - self._began
        # The route's pattern, not the path: ids would make a metric without end.
        route = getattr(self.scope.get("route"), "path", None) or "other"
        method = self.scope["method"] if self.scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, route, str(self.status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        line = {
            "time": round(time.time(), 3),
            "request_id": self.request_id,
            "method": method,
            "route": route,
            "status": self.status,
            "ms": round(seconds * 1000, 1),
            "key": self.key_id,
        }
        self._log.info(json.dumps(line))

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-request-id", self.request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-frame-options", b"DENY"),
        ]


_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"})
