"""The rollout actor: one vLLM engine that samples completions and takes new weights in place.

Rules of the weights (fail-stop): they are compared with the model before anything is touched, nothing is generated
meanwhile (the actor does one thing at a time), the version counts only when all of it has been done, and an engine
whose update failed halfway is never used again.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.errors import ActorError
from actors.member import Birth, FatalError, Member
from actors.settings import RolloutSettings
from actors.weights import model_shapes, read_weights
from judge.lease import Lease
from learner.types import WeightsVersion
from search.types import Completion, Prompt

REFUSED = "refused"
"""finish_reason of a completion whose prompt leaves no room for it."""

GRAPH_SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
"""Sequences of a decoding step for which a CUDA graph is recorded."""

PREFILL_TOKENS = 4096
"""Most prompt tokens of one engine step on a CPU."""


def engine_env(settings: RolloutSettings) -> dict[str, str]:
    """Environment of an engine's process; read by vLLM and OpenMP when they are imported."""
    env = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        # The engine in the actor's own process: a second one would import vLLM again and double the start, and new
        # weights would have to reach it by way of a file.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    if settings.gpus:
        # FlashInfer's sampler is compiled on first use, by a compiler that the machine may lack.
        return env | {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
    return env | {
        # Unset, decoding is ten times slower.
        "OMP_NUM_THREADS": str(settings.threads),
        # Threads that wait by spinning take the cores from each other and from the judge: three times slower.
        "OMP_WAIT_POLICY": "passive",
    }


def prompt_seed(seed: int, prompt_id: str) -> int:
    """A prompt's own seed (31 bits), so that its completions do not depend on what it is batched with."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{prompt_id}".encode()).digest()[:4], "big") >> 1


def _on_cpu(settings: RolloutSettings) -> dict[str, Any]:
    """Arguments of vLLM's LLM."""
    return {
        # Whole prompts only. When a prompt is cut in two, vLLM takes back the random number that its first half drew
        # from the request's own generator, and torch's CPU generators have no offset to set back: it dies with "CPU
        # Generator does not use offset" (0.32).
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(settings.max_model_len, PREFILL_TOKENS),
    }


def _on_gpu(settings: RolloutSettings) -> dict[str, Any]:
    """Arguments of vLLM's LLM. A small model's decoding step is a few hundred launches of microseconds each: recorded
    as a CUDA graph it takes a fraction of the time, compiled or not."""
    place: dict[str, Any] = {"gpu_memory_utilization": settings.gpu_memory_utilization}
    if not settings.enforce_eager and not settings.compiled:
        place["compilation_config"] = {
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            # Batches are filled up to the next of these: vLLM's own fifty take several times as long to record.
            "cudagraph_capture_sizes": [n for n in GRAPH_SIZES if n < settings.max_num_seqs] + [settings.max_num_seqs],
        }
    return place


class RolloutActor(Member):
    """See the module's docstring. Methods run one at a time."""

    def start(self, model_dir: str, settings: RolloutSettings, seed: int) -> Birth:
        """Loads vLLM and the model (20 to 40 s on two cores).

        Args:
            model_dir: what ``prepare_model`` returned: ``lm_head`` untied.
            seed: the run's seed; each prompt's own is derived from it.
        """
        os.environ.update(engine_env(settings))  # for callers that are not Ray actors
        from vllm import LLM

        self._settings, self._seed = settings, seed
        self._policy_version = 0
        self._shapes = model_shapes(Path(model_dir))
        if "lm_head.weight" not in self._shapes:
            raise ActorError(
                f"{model_dir} has no lm_head.weight of its own: give the folder that prepare_model returns"
            )
        self._turn = Lease(enabled=settings.gpus > 0)  # no judge of this machine times while the GPU samples
        with self._turn.shared():
            self._llm = LLM(
                model=model_dir,
                dtype=settings.dtype,
                max_model_len=settings.max_model_len,
                max_num_seqs=settings.max_num_seqs,
                enforce_eager=settings.enforce_eager,
                enable_prefix_caching=True,
                # Of the distribution that was sampled from: after temperature and top_p.
                logprobs_mode="processed_logprobs",
                seed=prompt_seed(seed, "engine"),
                disable_log_stats=True,
                distributed_executor_backend="uni",
                # An explicit size spares vLLM's measurement, which another role's memory would falsify.
                kv_cache_memory_bytes=math.ceil(settings.kv_cache_gb * 2**30),
                **(_on_gpu(settings) if settings.gpus else _on_cpu(settings)),
            )
        self._tokenizer = self._llm.get_tokenizer()
        return self.birth()

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """``settings.group_size`` completions of each prompt (``samples`` where it says so), in order.

        A prompt whose tokens and ``max_tokens`` exceed the context is not sent; its completions are empty, with
        ``finish_reason`` "refused" and the reason.

        Raises:
            ActorError: an update of the weights has failed before.
        """
        self._check_usable()
        encoded = [self._encode(prompt) for prompt in prompts]
        room = self._settings.max_model_len - self._settings.max_tokens
        sent = [i for i, ids in enumerate(encoded) if len(ids) <= room]
        with self._turn.shared():
            outputs = self._llm.generate(
                [{"prompt_token_ids": encoded[i]} for i in sent],
                [self._sampling(prompts[i]) for i in sent],
                use_tqdm=False,
            )
        answers = dict(zip(sent, outputs, strict=True))
        completions: list[Completion] = []
        for i, prompt in enumerate(prompts):
            if i in answers:
                completions += self._completions(prompt, tuple(encoded[i]), answers[i])
            else:
                completions += self._refusals(prompt, tuple(encoded[i]))
        return completions

    def load_weights(self, version: WeightsVersion) -> int:
        """Puts a published version into the engine; returns its policy_version.

        Raises:
            ActorError: it does not fit the model; the engine is as it was.
            FatalError: the update failed halfway; the engine is gone.
        """
        self._check_usable()
        if self._llm.llm_engine.is_sleeping():
            raise ActorError(
                "the engine sleeps: wake it before it is given weights, or waking brings the old ones back"
            )
        tensors = read_weights(version, self._shapes)
        try:
            with self._turn.shared():
                self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(tensors.items())})
                # A reload leaves the prefix cache: keys and values of the old weights.
                if self._llm.reset_prefix_cache() is not True:
                    raise RuntimeError("the prefix cache could not be reset")
        except Exception as error:
            self._llm = None
            text = f"weights version {version.policy_version} could not be put into the engine: {error}"
            raise FatalError(" ".join(text.split())) from error
        self._policy_version = version.policy_version
        return self._policy_version

    def probe(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        """log p of tokens 1 .. n-1 of a text (nats, temperature 1), computed afresh: no cached prefix is read."""
        from vllm import SamplingParams

        self._check_usable()
        params = SamplingParams(max_tokens=1, temperature=1.0, prompt_logprobs=0, skip_reading_prefix_cache=True)
        with self._turn.shared():
            (output,) = self._llm.generate([{"prompt_token_ids": list(token_ids)}], params, use_tqdm=False)
        entries = output.prompt_logprobs
        return tuple(float(entries[i][token_ids[i]].logprob) for i in range(1, len(token_ids)))

    def count_tokens(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Tokens of a chat with the template applied, up to where the answer starts."""
        return len(self._template(messages))

    def close(self) -> None:
        self._llm = None

    def _check_usable(self) -> None:
        if self._llm is None:
            raise FatalError("this engine's last update failed: it is not used again")

    def _template(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        encoded = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, return_dict=True
        )
        return list(encoded["input_ids"])

    def _encode(self, prompt: Prompt) -> list[int]:
        return self._template(prompt.messages)

    def _sampling(self, prompt: Prompt) -> Any:
        from vllm import SamplingParams

        return SamplingParams(
            n=prompt.samples or self._settings.group_size,
            max_tokens=self._settings.max_tokens,
            temperature=self._settings.temperature,
            top_p=self._settings.top_p,
            logprobs=0,  # the sampled token's own only
            detokenize=False,  # piece by piece, by vLLM, it takes longer than a small model's forward pass
            seed=prompt_seed(self._seed, prompt.prompt_id),
        )

    def _completions(self, prompt: Prompt, prompt_ids: tuple[int, ...], output: Any) -> list[Completion]:
        return [
            Completion(
                prompt_id=prompt.prompt_id,
                index=answer.index,
                text=self._tokenizer.decode(answer.token_ids, skip_special_tokens=True),
                prompt_token_ids=prompt_ids,
                token_ids=tuple(answer.token_ids),
                logprobs=tuple(
                    float(entry[token].logprob) for token, entry in zip(answer.token_ids, answer.logprobs, strict=True)
                ),
                finish_reason=answer.finish_reason or "",
                policy_version=self._policy_version,
            )
            for answer in sorted(output.outputs, key=lambda answer: answer.index)
        ]

    def _refusals(self, prompt: Prompt, prompt_ids: tuple[int, ...]) -> list[Completion]:
        reason = (
            f"the prompt has {len(prompt_ids)} tokens: with rollout.max_tokens = {self._settings.max_tokens} it "
            f"exceeds rollout.max_model_len = {self._settings.max_model_len}"
        )
        return [
            Completion(
                prompt_id=prompt.prompt_id,
                index=index,
                text="",
                prompt_token_ids=prompt_ids,
                finish_reason=REFUSED,
                policy_version=self._policy_version,
                reason=reason,
            )
            for index in range(prompt.samples or self._settings.group_size)
        ]
