"""OpenAI's protocol for completions, as far as a policy that writes text can follow it.

What would change the answer and is not supported (tools, images, response_format, ...) is refused by name; what only
labels a request (user, metadata, ...) is taken and ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from serving.generation import Generation, Piece, TokenLogprob

MOST_ANSWERS = 16
MOST_PROMPTS = 64


class OpenAIError(Exception):
    """An error in OpenAI's form; the text is one line."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        return error_body(self.status, str(self), param=self.param, code=self.code)


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """{"error": {...}} as OpenAI's clients read it."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class StreamOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    include_usage: bool = False


class _Common(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    max_tokens: int | None = Field(None, ge=1)
    n: int = Field(1, ge=1, le=MOST_ANSWERS)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    """Not used, as `user` and `store`."""
    store: bool | None = None

    @field_validator("n", "temperature", "top_p", "presence_penalty", "frequency_penalty", "stream", mode="before")
    @classmethod
    def _null_is_default(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, value: Any) -> Any:
        if isinstance(value, list) and (len(value) > 4 or "" in value):
            raise ValueError("at most 4 texts, none of them empty")
        return value or None

    @property
    def stops(self) -> tuple[str, ...]:
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class TextPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(_Common):
    """Body of POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    """max_tokens by its newer name."""
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)

    def generations(self, request_id: str) -> list[Generation]:
        """What the engine is asked for: one generation."""
        wanted = (self.top_logprobs or 0) if self.logprobs else None
        messages = tuple(message.plain() for message in self.messages)
        most = self.max_completion_tokens or self.max_tokens
        return [_generation(self, request_id, messages=messages, max_tokens=most, logprobs=wanted)]


class CompletionRequest(_Common):
    """Body of POST /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int | None = Field(16, ge=1)
    logprobs: int | None = Field(None, ge=0, le=5)

    def generations(self, request_id: str) -> list[Generation]:
        """One generation for each prompt. Raises OpenAIError for none, or too many."""
        given = self.prompt
        prompts: list[str | tuple[int, ...]]
        if isinstance(given, str):
            prompts = [given]
        elif given and isinstance(given[0], int):
            prompts = [tuple(given)]  # type: ignore[arg-type]  # pydantic has seen to it
        else:
            prompts = [one if isinstance(one, str) else tuple(one) for one in given]  # type: ignore[arg-type,misc]
        if not 0 < len(prompts) <= MOST_PROMPTS:
            raise OpenAIError(400, f"prompt: 1 to {MOST_PROMPTS} prompts, got {len(prompts)}", param="prompt")
        return [
            _generation(
                self, f"{request_id}-{number}", prompt=prompt, max_tokens=self.max_tokens, logprobs=self.logprobs
            )
            for number, prompt in enumerate(prompts)
        ]


_Request = TypeVar("_Request", ChatRequest, CompletionRequest)


def _generation(request: _Common, request_id: str, **fields: Any) -> Generation:
    return Generation(
        request_id=request_id,
        n=request.n,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=request.stops,
        seed=request.seed,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        **fields,
    )


def parse_openai(kind: type[_Request], body: bytes) -> _Request:
    """The request. Raises OpenAIError 400 that names the field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        raise OpenAIError(400, f"the body is not JSON: {first['ctx']['error']}")
    # Of a union's branches pydantic names the first: the field itself is what the caller knows.
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("list[", "str", "int")))
    if first["type"] == "extra_forbidden":
        raise OpenAIError(400, f"{where}: not supported by this server", param=where, code="unsupported_parameter")
    raise OpenAIError(400, f"{where}: {first['msg'].removeprefix('Value error, ')}", param=where or None)


class ReplyWriter:
    """Pieces into the bodies of one request's answer, streamed or whole."""

    def __init__(self, request: ChatRequest | CompletionRequest, reply_id: str, created: int, prompts: int) -> None:
        self._is_chat = isinstance(request, ChatRequest)
        self._request, self._prompts = request, prompts
        self._head = {"id": ("chatcmpl-" if self._is_chat else "cmpl-") + reply_id, "created": created}
        self._opened: set[int] = set()
        self._prompt_tokens: dict[int, int] = {}
        self._completion_tokens: dict[int, int] = {}
        self._version: int | None = None

    def chunks(self, number: int, piece: Piece) -> list[dict[str, Any]]:
        """Bodies of the events that a piece of prompt `number` makes."""
        index = self._seen(number, piece)
        chunks = []
        if self._is_chat and index not in self._opened:
            self._opened.add(index)
            chunks.append(self._chunk({"index": index, "delta": {"role": "assistant", "content": ""}}))
        if piece.text or piece.logprobs or piece.finish_reason is None:
            words: dict[str, Any] = {"delta": {"content": piece.text}} if self._is_chat else {"text": piece.text}
            chunks.append(self._chunk({"index": index, **words, "logprobs": self._logprobs(piece.logprobs)}))
        if piece.finish_reason is not None:
            words = {"delta": {}} if self._is_chat else {"text": ""}
            chunks.append(self._chunk({"index": index, **words, "finish_reason": piece.finish_reason}))
        return chunks

    def usage_chunk(self) -> dict[str, Any]:
        """The last event's body where usage was asked for."""
        return self._body(".chunk", []) | {"usage": self._usage()}

    def whole(self, answers: Sequence[Sequence[Piece]]) -> dict[str, Any]:
        """The body of an answer that is not streamed: the pieces of each prompt."""
        choices = []
        for number, pieces in enumerate(answers):
            for piece in pieces:
                index = self._seen(number, piece)
                words: dict[str, Any] = (
                    {"message": {"role": "assistant", "content": piece.text}} if self._is_chat else {"text": piece.text}
                )
                end = {"logprobs": self._logprobs(piece.logprobs), "finish_reason": piece.finish_reason}
                choices.append({"index": index, **words, **end})
        return self._body("", choices) | {"usage": self._usage()}

    def _seen(self, number: int, piece: Piece) -> int:
        index = number * self._request.n + piece.index
        self._prompt_tokens[number] = piece.prompt_tokens
        self._completion_tokens[index] = piece.completion_tokens
        self._version = piece.policy_version
        return index

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return self._body(".chunk", [{"finish_reason": None, "logprobs": None} | choice])

    def _body(self, suffix: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self._is_chat else "text_completion"
        return {
            **self._head,
            "object": kind,
            "model": self._request.model,
            "system_fingerprint": None if self._version is None else f"policy-{self._version}",
            "choices": choices,
        }

    def _usage(self) -> dict[str, int]:
        asked, written = sum(self._prompt_tokens.values()), sum(self._completion_tokens.values())
        return {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written}

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not tokens:
            return None
        if self._is_chat:
            return {
                "content": [_chat_token(one) | {"top_logprobs": [_entry(*top) for top in one.top]} for one in tokens]
            }
        return {
            "tokens": [one.token for one in tokens],
            "token_logprobs": [one.logprob for one in tokens],
            "top_logprobs": [dict(one.top) for one in tokens],
            "text_offset": [],
        }


def _chat_token(one: TokenLogprob) -> dict[str, Any]:
    return _entry(one.token, one.logprob) | {"top_logprobs": [_entry(*top) for top in one.top]}


def _entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": max(logprob, -9999.0), "bytes": list(token.encode())}
