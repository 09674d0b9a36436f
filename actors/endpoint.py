"""Models behind an OpenAI-compatible endpoint: prompts in, completions out, whatever the endpoint does meanwhile.

    model = EndpointModel(EndpointSettings(name="gpt-x", base_url="https://host/v1"), api_key=..., spending=Spending())
    model.check()                           # wrong key, wrong name: one line, at once
    completions = model.generate(prompts)

Answers are streamed, so that a cut is noticed and its tokens are counted. What may pass (429, 5xx, a lost connection, a
cut or silent stream, an answer that is no chat completion) is tried again after a pause that doubles, with jitter, and
no shorter than Retry-After says; after the last try the completion is empty with ``finish_reason`` "lost". What will
not pass (the key, the name, a spent quota, a request that the server does not understand) raises ModelError.
"""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from actors.errors import ActorError
from actors.settings import EndpointSettings
from actors.spending import Call, Price, Spending
from search.operators import estimate_tokens
from search.types import Completion, Prompt

if TYPE_CHECKING:
    import httpx

__all__ = ["EndpointModel", "EndpointSettings", "ModelError"]

LOST, REFUSED, UNPAID = "lost", "refused", "budget"
"""finish_reason of a completion that never came, whose prompt was refused, and that the budget did not admit."""
MAX_ANSWER_CHARACTERS = 1_000_000
"""A longer answer is cut off: no kernel needs it."""


class ModelError(ActorError):
    """A model cannot be used: its key, its name or the request is wrong. Trying again does not help."""


@dataclass
class _Answer:
    """What has arrived of one try."""

    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = -1
    completion_tokens: int = -1


@dataclass(eq=False)
class _FaultError(Exception):
    """A try that failed and may be repeated."""

    outcome: str
    detail: str = ""
    wait: float = 0.0
    answer: _Answer = field(default_factory=_Answer)


@dataclass(eq=False)
class _RefusedError(Exception):
    """This prompt will never be answered; others may."""

    detail: str


class EndpointModel:
    """See the module's docstring. Thread-safe."""

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        api_key: str = "",
        price: Price | None = None,
        spending: Spending | None = None,
        should_stop: threading.Event | None = None,
    ) -> None:
        """Opens no connection.

        Args:
            should_stop: set by the caller to end pauses and streams early; what is in flight comes back as lost.
        """
        import httpx

        self.settings = settings
        self.spending = spending or Spending()
        self._price = price or Price()
        self._stop = should_stop or threading.Event()
        self._random = random.Random()
        self._token_key = "max_tokens"
        self._temperature = settings.temperature
        timeout = httpx.Timeout(settings.silence_seconds, connect=settings.connect_seconds)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._client = httpx.Client(base_url=settings.base_url.rstrip("/") + "/", timeout=timeout, headers=headers)
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:
            raise ModelError(f"{settings.base_url!r} with this key is no endpoint: {error}") from None

    @property
    def name(self) -> str:
        return self.settings.name

    def check(self) -> None:
        """Ask whether the endpoint takes the key and knows the model.

        Raises ModelError when it says no. An endpoint that is down, or lists no models, raises nothing: it may come up.
        """
        import httpx

        try:
            reply = self._client.get("models")
        except httpx.UnsupportedProtocol as error:
            raise ModelError(f"{self.settings.base_url}: {error}; write --base-url https://host/v1") from None
        except httpx.HTTPError:
            return
        if reply.status_code in (401, 403):
            raise self._denied(reply.status_code, reply.text)
        if reply.status_code != 200:
            return
        try:
            known = [str(one["id"]) for one in reply.json()["data"]]
        except (ValueError, KeyError, TypeError):
            return
        if known and self.name not in known:
            raise self._unknown(known)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """One completion of each prompt, in their order. Raises as ``stream``."""
        found = {completion.prompt_id: completion for completion in self.stream(prompts)}
        return [found[prompt.prompt_id] for prompt in prompts]

    def stream(self, prompts: Sequence[Prompt]) -> Iterator[Completion]:
        """One completion of each prompt as they come.

        Raises ModelError: prompts that wait are not asked then; calls in flight are finished and counted. A caller that
        goes away (Ctrl-C) waits for nothing.
        """
        waiting: queue.SimpleQueue[Prompt] = queue.SimpleQueue()
        for prompt in prompts:
            waiting.put(prompt)
        results: queue.SimpleQueue[Completion | Exception] = queue.SimpleQueue()
        over = threading.Event()

        def work() -> None:
            while not over.is_set():
                try:
                    prompt = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    results.put(self._complete(prompt))
                except Exception as error:  # raised again where the caller is
                    over.set()
                    results.put(error)

        # Daemons: a stream that is silent must not keep the process after Ctrl-C.
        count = min(self.settings.concurrency, len(prompts))
        threads = [threading.Thread(target=work, name=f"endpoint-{self.name}", daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            for _ in prompts:
                result = results.get()
                if isinstance(result, Exception):
                    for thread in threads:
                        thread.join(self.settings.call_seconds)
                    raise result
                yield result
        finally:
            over.set()

    def count_tokens(self, messages: Sequence[Mapping[str, str]]) -> int:
        """An estimate: the endpoint's tokenizer is not at hand."""
        return sum(estimate_tokens(message["content"]) for message in messages)

    def close(self) -> None:
        self._client.close()

    def _complete(self, prompt: Prompt) -> Completion:
        empty = Completion(prompt_id=prompt.prompt_id, index=0, text="", model=self.name)
        most = self._price.of(self.count_tokens(prompt.messages), self.settings.max_tokens)
        fault = _FaultError("stopped")
        for number in range(self.settings.tries):
            if number and self._stop.wait(self._pause(number, fault.wait)):
                break
            with self.spending.admitted(most) as allowed:
                if not allowed:
                    return replace(empty, finish_reason=UNPAID, reason="the budget is spent")
                began = time.monotonic()
                try:
                    answer = self._ask_once(prompt)
                except _RefusedError as refused:
                    return replace(empty, finish_reason=REFUSED, reason=refused.detail)
                except _FaultError as caught:
                    fault = caught
                    self._count(prompt, fault.answer, fault.outcome, time.monotonic() - began)
                    continue
                self._count(prompt, answer, "ok", time.monotonic() - began)
            return replace(empty, text=answer.text, finish_reason=answer.finish_reason)
        reason = f"{self.name} gave no answer in {self.settings.tries} tries: {fault.outcome} {fault.detail}"
        return replace(empty, finish_reason=LOST, reason=" ".join(reason.split())[:300])

    def _pause(self, number: int, at_least: float) -> float:
        """Seconds before try `number` (from 1): doubled each time, half of it by chance, so that calls part ways."""
        longest = min(self.settings.backoff * 2 ** (number - 1), self.settings.max_backoff)
        return max(longest * (0.5 + self._random.random() / 2), min(at_least, self.settings.max_backoff))

    def _ask_once(self, prompt: Prompt) -> _Answer:
        import httpx

        answer = _Answer()
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [dict(message) for message in prompt.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            self._token_key: self.settings.max_tokens,
        }
        if self._temperature is not None:
            body["temperature"] = self._temperature
        try:
            with self._client.stream("POST", "chat/completions", json=body) as reply:
                if reply.status_code != 200:
                    reply.read()
                    self._judge_status(reply)
                self._read_stream(reply, answer)
        except httpx.TimeoutException:
            raise _FaultError("timeout", answer=answer) from None
        except httpx.UnsupportedProtocol as error:
            raise ModelError(f"{self.settings.base_url}: {error}; write --base-url https://host/v1") from None
        except httpx.HTTPError as error:
            raise _FaultError("cut" if answer.text else "connection", str(error), answer=answer) from None
        if not answer.finish_reason:
            raise _FaultError("cut", "the stream ended before the answer did", answer=answer)
        return answer

    def _read_stream(self, reply: httpx.Response, answer: _Answer) -> None:
        """Fill `answer` from server-sent events, or from one JSON body where the server does not stream."""
        streams = "text/event-stream" in reply.headers.get("content-type", "")
        left = ""
        for piece in self._pieces(reply, answer):
            *lines, left = (left + piece).split("\n") if streams else (left + piece,)
            if len(left) > MAX_ANSWER_CHARACTERS:
                raise _FaultError("nonsense", "a line without an end", answer=answer)
            for line in lines:
                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                if data == "[DONE]":
                    return
                if data:
                    self._take_chunk(_json(data, answer), answer)
            if len(answer.text) > MAX_ANSWER_CHARACTERS:
                answer.finish_reason = "length"
                return
        if not streams:
            self._take_chunk(_json(left, answer), answer)

    def _pieces(self, reply: httpx.Response, answer: _Answer) -> Iterator[str]:
        """The body as it arrives, while there is time and the caller waits."""
        end = time.monotonic() + self.settings.call_seconds
        for piece in reply.iter_text():
            if time.monotonic() > end:
                raise _FaultError("timeout", f"longer than {self.settings.call_seconds:g} s", answer=answer)
            if self._stop.is_set():
                raise _FaultError("stopped", answer=answer)
            yield piece

    def _take_chunk(self, chunk: Any, answer: _Answer) -> None:
        """One event, or a whole completion. Raises _FaultError for what is neither."""
        try:
            if chunk.get("error"):
                raise _FaultError("error", _message(chunk), answer=answer)
            for choice in (chunk.get("choices") or [])[:1]:
                part = choice.get("delta") or choice.get("message") or {}
                answer.text += part.get("content") or ""
                answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
            usage = chunk.get("usage") or {}
            answer.prompt_tokens = int(usage.get("prompt_tokens", answer.prompt_tokens))
            answer.completion_tokens = int(usage.get("completion_tokens", answer.completion_tokens))
        except (AttributeError, TypeError, ValueError):
            raise _FaultError("nonsense", "not a chat completion", answer=answer) from None

    def _judge_status(self, reply: httpx.Response) -> None:
        """Raises what a status other than 200 means: to try again, for this prompt only, or for good (ModelError)."""
        status, text = reply.status_code, reply.text
        said = _message(_loads(text)) or text
        said = " ".join(said.split())[:200]
        lower = text.lower()
        if status in (401, 403):
            raise self._denied(status, text)
        if status == 402 or "insufficient_quota" in lower:
            raise ModelError(f"{self.name} at {self.settings.base_url}: the account's quota is spent: {said}")
        if status == 404 or "model_not_found" in lower:
            raise self._unknown([], said)
        if status in (400, 413, 422):
            if "context" in lower and ("length" in lower or "window" in lower):
                raise _RefusedError(f"the prompt is too long for {self.name}: {said}")
            if self._adapt(lower):
                raise _FaultError(str(status), said)
            raise ModelError(f"{self.name} at {self.settings.base_url} does not take the request: {status} {said}")
        raise _FaultError(str(status), said, wait=_retry_after(reply.headers.get("retry-after", "")))

    def _adapt(self, said: str) -> bool:
        """Newer models want another name for the limit, or no temperature: change the request once each."""
        if "max_completion_tokens" in said and self._token_key != "max_completion_tokens":
            self._token_key = "max_completion_tokens"
            return True
        if "temperature" in said and self._temperature is not None:
            self._temperature = None
            return True
        return False

    def _denied(self, status: int, text: str) -> ModelError:
        said = " ".join((_message(_loads(text)) or text).split())[:160]
        return ModelError(
            f"{self.settings.base_url} refuses the key ({status}: {said}); set OPENAI_API_KEY, or the variable that "
            "--api-key-env names"
        )

    def _unknown(self, known: Sequence[str], said: str = "") -> ModelError:
        import difflib

        near = difflib.get_close_matches(self.name, known, n=3, cutoff=0.3) or list(known[:3])
        note = f"; it has {', '.join(near)}" if near else f" ({said})" if said else ""
        return ModelError(f"{self.settings.base_url} has no model {self.name!r}{note}; check --model and --base-url")

    def _count(self, prompt: Prompt, answer: _Answer, outcome: str, seconds: float) -> None:
        """A failed try costs what arrived of it; a refused one nothing."""
        told = answer.completion_tokens >= 0
        arrived = outcome == "ok" or bool(answer.text)
        asked = answer.prompt_tokens if answer.prompt_tokens >= 0 else self.count_tokens(prompt.messages) * arrived
        written = answer.completion_tokens if told else estimate_tokens(answer.text) * arrived
        self.spending.add(
            Call(
                prompt_id=prompt.prompt_id,
                model=self.name,
                operator=prompt.operator,
                prompt_tokens=asked,
                completion_tokens=written,
                usd=self._price.of(asked, written),
                seconds=round(seconds, 3),
                outcome=outcome,
                estimated=arrived and not told,
            )
        )


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _json(text: str, answer: _Answer) -> Any:
    found = _loads(text)
    if not isinstance(found, dict):
        raise _FaultError("nonsense", "not JSON", answer=answer)
    return found


def _message(body: Any) -> str:
    """The server's own words, in OpenAI's form or vLLM's."""
    error = body.get("error", body) if isinstance(body, dict) else None
    found = error.get("message") if isinstance(error, dict) else error
    return found if isinstance(found, str) else ""


def _retry_after(value: str) -> float:
    """Seconds; a date, or nothing, is 0."""
    try:
        return max(float(value), 0.0)
    except ValueError:
        return 0.0
