"""The policy's engine for many callers at once: vLLM's AsyncLLM, answers piece by piece, new weights in between.

    engine = PolicyEngine(model_dir, rollout_settings, seed=0)
    async for piece in engine.stream(Generation(request_id="r1", messages=({"role": "user", "content": "hello"},))):
        ...
    await engine.load_weights(version)     # waits for answers that have begun; later ones wait for it

The engine is a process of its own (vLLM offers no other way for asynchronous use); it ends with ``close``.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from actors.errors import ActorError
from actors.member import FatalError
from actors.rollout import PREFILL_TOKENS, REFUSED, engine_env, prompt_seed
from actors.settings import RolloutSettings
from actors.weights import model_shapes, read_weights
from learner.types import WeightsVersion
from search.types import Completion, Prompt
from serving.generation import Generation, Piece, Refusal, TokenLogprob

_BROKEN = "this engine's last update failed: it is not used again"


class PolicyEngine:
    """See the module's docstring. All methods belong to the event loop that made it."""

    def __init__(self, model_dir: Path, settings: RolloutSettings, *, seed: int) -> None:
        """Loads vLLM and the model (about a minute on two cores).

        Args:
            model_dir: what ``prepare_model`` returned.
        """
        os.environ.update(policy_env(settings))  # for callers that are not Ray actors
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._settings, self._seed = settings, seed
        self._shapes = model_shapes(Path(model_dir))
        place: dict[str, Any] = (
            {"gpu_memory_utilization": settings.gpu_memory_utilization}
            if settings.gpus
            else {
                "distributed_executor_backend": "uni",
                "kv_cache_memory_bytes": math.ceil(settings.kv_cache_gb * 2**30),
                "enable_chunked_prefill": False,  # actors/rollout.py says why
                "max_num_batched_tokens": max(settings.max_model_len, PREFILL_TOKENS),
            }
        )
        self._llm: Any = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(model_dir),
                dtype=settings.dtype,
                max_model_len=settings.max_model_len,
                max_num_seqs=settings.max_num_seqs,
                enforce_eager=settings.enforce_eager,
                enable_prefix_caching=True,
                logprobs_mode="processed_logprobs",
                seed=prompt_seed(seed, "engine"),
                disable_log_stats=True,
                enable_log_requests=False,
                **place,
            )
        )
        self._tokenizer: Any = self._llm.get_tokenizer()
        self._updating = asyncio.Lock()
        self.policy_version = 0
        self.weights_sha256 = ""
        self._broken = False

    async def stream(self, generation: Generation) -> AsyncIterator[Piece | Refusal]:
        """The answers' pieces as they come; or one Refusal, when the request does not fit the engine."""
        from vllm.sampling_params import RequestOutputKind

        async for piece in self._generate(generation, RequestOutputKind.DELTA):
            yield piece

    async def complete(self, generation: Generation) -> list[Piece] | Refusal:
        """Whole answers, by index: cheaper than a stream."""
        from vllm.sampling_params import RequestOutputKind

        pieces: list[Piece] = []
        async for piece in self._generate(generation, RequestOutputKind.FINAL_ONLY):
            if isinstance(piece, Refusal):
                return piece
            pieces.append(piece)
        return sorted(pieces, key=lambda piece: piece.index)

    async def sample(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """``settings.group_size`` completions of each prompt, in order, as a rollout pool gives them.

        A prompt that leaves no room for an answer comes back with ``finish_reason`` "refused". No logprobs: nobody
        learns from these.
        """
        groups = await asyncio.gather(*(self._sample(prompt) for prompt in prompts))
        return [completion for group in groups for completion in group]

    async def load_weights(self, version: WeightsVersion) -> None:
        """Answers that have begun are finished with the old weights, later ones wait; none fails.

        Raises:
            ActorError: the version does not fit the model; the engine is as it was.
            FatalError: the update failed halfway; the engine is not used again.
        """
        self._check_usable()
        await asyncio.to_thread(read_weights, version, self._shapes)
        async with self._updating:
            if (self.policy_version, self.weights_sha256) == (version.policy_version, version.sha256):
                return
            try:
                await self._llm.pause_generation(mode="wait", clear_cache=True)
                # The engine is another process: it reads the file, whose folder no other version had.
                await self._llm.collective_rpc("reload_weights", kwargs={"weights_path": version.path})
                if await self._llm.reset_prefix_cache() is not True:  # keys and values of the old weights
                    raise RuntimeError("the prefix cache could not be reset")
                self.policy_version, self.weights_sha256 = version.policy_version, version.sha256
                await self._llm.resume_generation()
            except Exception as error:
                self._broken = True
                text = f"weights version {version.policy_version} could not be put into the engine: {error}"
                raise FatalError(" ".join(text.split())) from error

    async def check_health(self) -> None:
        """Raises FatalError when the engine's process has died, or an update has failed halfway."""
        self._check_usable()
        try:
            await self._llm.check_health()
        except Exception as error:
            raise FatalError(f"the engine has died: {' '.join(str(error).split())[:200]}") from None

    def close(self) -> None:
        """Ends the engine's process."""
        llm, self._llm = self._llm, None  # let go here: vLLM's own finalizer fails when the interpreter is ending
        if llm is not None:
            llm.shutdown(timeout=5)

    def _check_usable(self) -> None:
        if self._broken:
            raise FatalError(_BROKEN)

    async def _generate(self, generation: Generation, kind: Any) -> AsyncIterator[Piece | Refusal]:
        self._check_usable()
        prompt = self._encode(generation)
        if isinstance(prompt, Refusal):
            yield prompt
            return
        version: int | None = None
        counts: dict[int, int] = {}
        params = self._params(generation, len(prompt), kind)
        async for output in self._llm.generate({"prompt_token_ids": prompt}, params, generation.request_id):
            # Weights change only between requests: the version of the first token is that of the last.
            version = self.policy_version if version is None else version
            for answer in output.outputs:
                counts[answer.index] = counts.get(answer.index, 0) + len(answer.token_ids)
                yield Piece(
                    index=answer.index,
                    text=answer.text,
                    finish_reason=answer.finish_reason,
                    prompt_tokens=len(prompt),
                    completion_tokens=counts[answer.index],
                    policy_version=version,
                    logprobs=_logprobs(answer, generation.logprobs),
                )

    def _encode(self, generation: Generation) -> list[int] | Refusal:
        try:
            if generation.messages:
                messages = [dict(message) for message in generation.messages]
                encoded = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
                ids = list(encoded["input_ids"])
            elif isinstance(generation.prompt, str):
                ids = list(self._tokenizer.encode(generation.prompt))
            else:
                ids = list(generation.prompt)
        except Exception as error:  # a template may refuse an order of roles, in its own words
            return Refusal(status=400, message=f"the messages do not fit the model's template: {error}")
        size = len(self._tokenizer)
        if not ids:
            return Refusal(status=400, message="the prompt is empty", param="prompt")
        if any(not 0 <= i < size for i in ids):
            return Refusal(status=400, message=f"token ids of this model are 0 to {size - 1}", param="prompt")
        room = self._settings.max_model_len - len(ids)
        wanted = generation.max_tokens or 1
        if room < wanted:
            text = (
                f"this model's context is {self._settings.max_model_len} tokens: the prompt has {len(ids)} and "
                f"{wanted} are asked for"
            )
            return Refusal(status=400, message=text, param="messages" if generation.messages else "prompt")
        return ids

    def _params(self, generation: Generation, prompt_tokens: int, kind: Any) -> Any:
        from vllm import SamplingParams

        return SamplingParams(
            n=generation.n,
            max_tokens=generation.max_tokens or self._settings.max_model_len - prompt_tokens,
            temperature=generation.temperature,
            top_p=generation.top_p,
            stop=list(generation.stop) or None,
            seed=generation.seed,
            presence_penalty=generation.presence_penalty,
            frequency_penalty=generation.frequency_penalty,
            logprobs=generation.logprobs,
            output_kind=kind,
        )

    async def _sample(self, prompt: Prompt) -> list[Completion]:
        settings = self._settings
        generation = Generation(
            request_id=f"{prompt.prompt_id}-{os.urandom(4).hex()}",
            messages=tuple(dict(message) for message in prompt.messages),
            n=settings.group_size,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=prompt_seed(self._seed, prompt.prompt_id),
        )
        answers = await self.complete(generation)
        if isinstance(answers, Refusal):
            return [
                Completion(
                    prompt_id=prompt.prompt_id,
                    index=index,
                    text="",
                    finish_reason=REFUSED,
                    policy_version=self.policy_version,
                    reason=answers.message,
                )
                for index in range(settings.group_size)
            ]
        return [
            Completion(
                prompt_id=prompt.prompt_id,
                index=answer.index,
                text=answer.text,
                finish_reason=answer.finish_reason or "",
                policy_version=answer.policy_version,
            )
            for answer in answers
        ]


def policy_env(settings: RolloutSettings) -> dict[str, str]:
    """Environment of a process that makes a PolicyEngine; read by vLLM and OpenMP when they are imported."""
    env = engine_env(settings)
    env.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    return env


def require_fit(version: WeightsVersion, model_dir: Path) -> None:
    """Raises ActorError unless the version is what was published and fits the model."""
    shapes = model_shapes(model_dir)
    if not shapes:
        raise ActorError(f"{model_dir}: holds no weights")
    read_weights(version, shapes)


def _logprobs(answer: Any, wanted: int | None) -> tuple[TokenLogprob, ...]:
    if wanted is None or not answer.logprobs:
        return ()
    found = []
    for token, entry in zip(answer.token_ids, answer.logprobs, strict=True):
        ranked = sorted(entry.values(), key=lambda one: -one.logprob)[:wanted]
        found.append(
            TokenLogprob(
                token=entry[token].decoded_token or "",
                logprob=float(entry[token].logprob),
                top=tuple((one.decoded_token or "", float(one.logprob)) for one in ranked),
            )
        )
    return tuple(found)
