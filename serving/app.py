"""The service on Ray Serve: three deployments.

The *front* speaks HTTP (serving/api.py) and answers /healthz at any time. The *policy* holds one vLLM engine a replica,
for completions and for the searches alike; Ray Serve adds and removes replicas with the load where the settings allow.
The *optimizer* holds the judges and works on jobs, one after the other, since a timing must have the machine to itself.
Jobs, keys and records are in the archive's database, so any of the three may die and come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import serve

from serving.backend import BackendError, Health
from serving.generation import Answer, Generation, Piece, Refusal
from serving.messages import JudgeRequest

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle

    from actors.settings import EvaluatorSettings, RolloutSettings, Timeouts
    from judge.settings import JudgeSettings
    from search.settings import SearchSettings
    from search.types import Completion, Prompt
    from serving.settings import ServingSettings

WEIGHTS_SECONDS = 1.0
"""How often an engine looks whether there are other weights."""
SPARE_REQUESTS = 64
"""Requests that a deployment takes beyond those that the front lets in: health checks, and those that it refuses."""
_log = logging.getLogger("warpsmith.serving")


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the service is made of; travels to its processes."""

    model_dir: Path
    """What learner.pretrained.prepare_model returned."""
    model_name: str
    archive_url: str
    seed: int
    serving: ServingSettings
    rollout: RolloutSettings
    evaluators: EvaluatorSettings
    judge: JudgeSettings
    search: SearchSettings
    timeouts: Timeouts


@serve.deployment(name="policy")
class Policy:
    """One engine."""

    # Ray Serve awaits it; the engine belongs to the event loop of the calls.
    async def __init__(self, service: Service) -> None:  # type: ignore[misc]
        from archive.store import Archive
        from serving.policy import PolicyEngine
        from serving.weights_board import WeightsBoard

        self._engine: Any = None
        self._engine = PolicyEngine(service.model_dir, service.rollout, seed=service.seed)
        board = WeightsBoard(Archive(service.archive_url))
        await self._take_weights(board)
        self._watching = asyncio.create_task(self._watch(board))

    async def complete(self, generation: Generation) -> list[Piece] | Refusal:
        found: list[Piece] | Refusal = await self._engine.complete(generation)
        return found

    async def stream(self, generation: Generation) -> AsyncIterator[Piece | Refusal]:
        async for piece in self._engine.stream(generation):
            yield piece

    async def sample(self, prompts: Sequence[Prompt]) -> list[Completion]:
        found: list[Completion] = await self._engine.sample(prompts)
        return found

    async def version(self) -> int:
        """The policy's version; answering is the sign of life."""
        version: int = self._engine.policy_version
        return version

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def _watch(self, board: Any) -> None:
        while True:
            await asyncio.sleep(WEIGHTS_SECONDS)
            try:
                await self._take_weights(board)
            except Exception as error:  # weights that vanished, a database that is away: the old ones serve on
                _log.error("weights: %s", " ".join(str(error).split()))

    async def _take_weights(self, board: Any) -> None:
        version = await asyncio.to_thread(board.current)
        engine = self._engine
        if version and (version.policy_version, version.sha256) != (engine.policy_version, engine.weights_sha256):
            await engine.load_weights(version)

    def __del__(self) -> None:
        if self._engine is not None:
            self._engine.close()


class ServedRollout:
    """The policy's replicas as a search sees them (serving.optimizer.Rollout); for a thread of its own."""

    def __init__(self, policy: DeploymentHandle, service: Service) -> None:
        from transformers import AutoTokenizer

        self._policy, self._timeouts = policy, service.timeouts
        self._retries = service.rollout.max_retries
        self._tokenizer: Any = AutoTokenizer.from_pretrained(service.model_dir)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """As RolloutPool.generate; prompts go to replicas one by one. Raises ActorError when none answers."""
        from actors.errors import ActorError

        answers: dict[str, list[Completion]] = {}
        for attempt in range(self._retries + 1):
            waiting = {
                prompt.prompt_id: self._policy.sample.remote([prompt])
                for prompt in prompts
                if prompt.prompt_id not in answers
            }
            failure = ""
            for prompt_id, response in waiting.items():
                try:
                    answers[prompt_id] = response.result(timeout_s=self._timeouts.rollout)
                except Exception as error:  # a lost replica shows as one of many of Ray's errors
                    failure = type(error).__name__
                    _log.error("prompt %s, attempt %d: %s", prompt_id, attempt + 1, failure)
            if not failure:
                return [completion for prompt in prompts for completion in answers[prompt.prompt_id]]
        raise ActorError(f"no engine of the policy answered ({failure}), {self._retries + 1} times")

    def count_tokens(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Tokens of a chat as the engine would be given it."""
        encoded = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, return_dict=True
        )
        return len(encoded["input_ids"])


@serve.deployment(name="optimizer")
class Optimizer:
    """Works on jobs, and lets the judges answer /v1/judge in between. Its pool is its own: it ends with it."""

    def __init__(self, service: Service, policy: DeploymentHandle) -> None:
        from actors.pools import EvaluatorPool
        from archive.store import Archive
        from archive.types import new_id
        from serving.job_runner import JobRunner
        from serving.job_store import JobStore
        from serving.optimizer import Workbench
        from serving.shared_judges import SharedJudges

        settings = service.serving
        archive = Archive(service.archive_url)
        self._evaluators = EvaluatorPool(service.judge, service.evaluators, service.timeouts)
        self._evaluators.wait_ready()
        self._judges = SharedJudges(self._evaluators)
        bench = Workbench(
            rollout=ServedRollout(policy, service),
            evaluators=self._judges,
            archive=archive,
            search=service.search,
            prompts_per_round=settings.policy_replicas_max,
            seed=service.seed,
        )
        self._runner = JobRunner(
            bench,
            JobStore(archive, lease_seconds=settings.job_lease_seconds, most_attempts=settings.job_attempts),
            worker=f"{os.uname().nodename[:20]}-{os.getpid()}-{new_id()[:8]}",
            lease_seconds=settings.job_lease_seconds,
            keep_jobs=settings.keep_jobs,
        )
        self._runner.start()

    async def judge(self, request: JudgeRequest) -> Answer:
        """The verdict on a posted candidate."""
        return await asyncio.to_thread(self._judge, request)

    def _judge(self, request: JudgeRequest) -> Answer:
        from serving.judging import judge_answer

        return judge_answer(request, self._judges)

    async def alive(self) -> bool:
        """Whether jobs are worked on and the judges can judge."""
        return self._runner.is_alive() and not self._judges.broken

    async def check_health(self) -> None:
        if not self._runner.is_alive():
            raise RuntimeError("the thread that works on jobs has ended")
        if self._judges.broken:
            raise RuntimeError(f"the judges are lost: {self._judges.broken}")

    def __del__(self) -> None:
        # Give the job in hand back first: the next process takes it up at once.
        for name, end in (("_runner", "stop"), ("_judges", "close"), ("_evaluators", "close")):
            if hasattr(self, name):
                getattr(getattr(self, name), end)()


class ServeBackend:
    """The deployments as the front sees them (serving.backend.Backend)."""

    def __init__(self, policy: DeploymentHandle, optimizer: DeploymentHandle) -> None:
        self._policy, self._optimizer = policy, optimizer
        self._streams = policy.options(stream=True)

    async def complete(self, generation: Generation) -> list[Piece] | Refusal:
        return await _answer(self._policy.complete.remote(generation), "the policy")

    async def stream(self, generation: Generation) -> AsyncIterator[Piece | Refusal]:
        pieces = self._streams.stream.remote(generation)
        try:
            async for piece in pieces:
                yield piece
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise BackendError(f"the policy does not answer ({type(error).__name__}): try again") from None
        finally:
            with contextlib.suppress(Exception):
                pieces.cancel()  # nothing where it has ended; else the engine stops writing

    async def judge(self, request: JudgeRequest) -> Answer:
        return await _answer(self._optimizer.judge.remote(request), "the judge")

    async def health(self) -> Health:
        version, alive = await asyncio.gather(
            _answer(self._policy.version.remote(), "the policy"),
            _answer(self._optimizer.alive.remote(), "the optimizer"),
        )
        return Health(policy_version=version, optimizer=alive)


async def _answer(response: Any, who: str) -> Any:
    try:
        return await response
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            response.cancel()
        raise
    except Exception as error:  # a dead replica shows as one of many of Ray's errors
        raise BackendError(f"{who} does not answer ({type(error).__name__}): try again") from None


@serve.deployment(name="front")
@serve.ingress()
class Front:
    """Speaks HTTP."""

    def __init__(self, service: Service, policy: DeploymentHandle, optimizer: DeploymentHandle) -> None:
        self._service = service
        self._backend = ServeBackend(policy, optimizer)

    def __serve_build_asgi_app__(self) -> Any:
        from archive.store import Archive
        from serving.api import build_api

        service = self._service
        return build_api(
            self._backend,
            service.serving,
            Archive(service.archive_url),
            model_name=service.model_name,
            model_dir=str(service.model_dir),
        )


def build_app(service: Service) -> Application:
    """The application, for ray.serve.run."""
    from serving.policy import policy_env

    settings = service.serving
    ending = service.timeouts.shutdown
    ongoing = settings.max_completing + settings.max_judging + SPARE_REQUESTS
    scale: dict[str, Any] = {"num_replicas": settings.policy_replicas_min}
    if settings.policy_replicas_max > settings.policy_replicas_min:
        scale = {
            "autoscaling_config": {
                "min_replicas": settings.policy_replicas_min,
                "max_replicas": settings.policy_replicas_max,
                "target_ongoing_requests": settings.policy_target_ongoing,
            }
        }
    place = {"num_cpus": 0, "num_gpus": service.rollout.gpus, "runtime_env": {"env_vars": policy_env(service.rollout)}}
    policy = Policy.options(  # type: ignore[attr-defined]  # the decorator makes it a Deployment
        max_ongoing_requests=ongoing, ray_actor_options=place, graceful_shutdown_timeout_s=ending, **scale
    ).bind(service)
    optimizer = Optimizer.options(  # type: ignore[attr-defined]
        max_ongoing_requests=ongoing, ray_actor_options={"num_cpus": 0}, graceful_shutdown_timeout_s=ending
    ).bind(service, policy)
    front = Front.options(  # type: ignore[attr-defined]
        max_ongoing_requests=4 * ongoing, ray_actor_options={"num_cpus": 0}, graceful_shutdown_timeout_s=ending
    )
    return front.bind(service, policy, optimizer)
