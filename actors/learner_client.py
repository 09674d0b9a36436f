"""The driver's side of the learner: calls with deadlines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.death import kill, wait_gone
from actors.errors import ActorError, LearnerLostError
from actors.learner import LearnerActor
from actors.member import Birth
from actors.placement import Reservation
from actors.settings import Timeouts
from actors.types import Failure
from learner.settings import LearnerSettings
from learner.types import Sample, StepResult, WeightsVersion

LEARNER = "learner"
"""Its role's name."""
LEARNER_CPUS = 0.5


class LearnerClient:
    """One learner actor. What it knew when it died is in the last checkpoint: the caller starts it again (``restart``)
    and loads that.

    learner = LearnerClient(model_dir, settings, timeouts, temperature=0.9, work_dir=folder, seed=0)
    result = learner.step(samples)
    version = learner.publish(folder / "weights")

    Every method raises LearnerError as the engine does, LearnerLostError when the learner died or passed its deadline,
    and ActorError when it failed in another way.
    """

    actor_class: Any = LearnerActor
    """What the actor is: something with the engine's methods."""

    def __init__(
        self,
        model_dir: Path,
        settings: LearnerSettings,
        timeouts: Timeouts,
        *,
        temperature: float,
        work_dir: Path,
        seed: int,
        places: Reservation | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Begins to start the actor; the first use waits for it. Arguments as of ``learner.engine.Engine``.

        Args:
            places: where it may have a reserved place.
            resources: of Ray's custom kind.
        """
        self._timeouts = timeouts
        self._arguments = {
            "model_dir": str(model_dir),
            "settings": settings,
            "temperature": temperature,
            "work_dir": str(work_dir),
            "seed": seed,
        }
        self._options = {
            "num_cpus": LEARNER_CPUS,
            "num_gpus": settings.gpus,
            "resources": dict(resources or {}),
            "scheduling_strategy": (places or Reservation()).strategy(LEARNER, 0),
            "max_restarts": 0,
        }
        self._begin()

    def _begin(self) -> None:
        import ray

        self._birth: Birth | None = None
        self._busy = False
        self.policy_version = 0
        self._actor: Any = ray.remote(self.actor_class).options(**self._options).remote(0)
        self._starting: Any = self._actor.apply.remote(self.actor_class.start, **self._arguments)

    def restart(self) -> None:
        """Ends what is left of the actor and begins to start another, which knows nothing until ``load``."""
        self.close()
        self._begin()

    def wait_ready(self) -> None:
        """Until the engine is ready."""
        if self._birth is None:
            self._birth = self._get(self._starting, "start", self._timeouts.actor_start)

    def step(self, samples: Sequence[Sample]) -> StepResult:
        """One contrastive update."""
        result: StepResult = self._call("step", self._timeouts.learn, samples=list(samples))
        self.policy_version = result.policy_version
        return result

    def sft_step(self, samples: Sequence[Sample], lr_scale: float = 1.0) -> StepResult:
        """One supervised update at ``lr_scale`` times its learning rate."""
        result: StepResult = self._call("sft_step", self._timeouts.learn, samples=list(samples), lr_scale=lr_scale)
        self.policy_version = result.policy_version
        return result

    def probe(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        """log p of tokens 1 .. n-1 of a text, nats, temperature 1."""
        value: tuple[float, ...] = self._call("probe", self._timeouts.sync, token_ids=tuple(token_ids))
        return value

    def publish(self, folder: Path) -> WeightsVersion:
        """Writes the whole policy as a new version below ``folder``."""
        version: WeightsVersion = self._call("publish", self._timeouts.sync, folder=str(folder))
        return version

    def lend(self) -> WeightsVersion:
        """The whole policy in memory, for engines of the learner's machine, until the next call."""
        version: WeightsVersion = self._call("lend", self._timeouts.sync)
        return version

    def save(self, folder: Path) -> None:
        """Writes a checkpoint."""
        self._call("save", self._timeouts.sync, folder=str(folder))

    def load(self, folder: Path) -> None:
        """Continues from a checkpoint."""
        self.policy_version = self._call("load", self._timeouts.sync, folder=str(folder))

    @property
    def pid(self) -> int | None:
        """The learner's process once it is ready."""
        return self._birth.pid if self._birth else None

    def close(self) -> None:
        """Ends the learner within ``timeouts.shutdown``; safe to call twice and after Ray itself has gone."""
        import ray

        actor, self._actor = self._actor, None
        if actor is None or not ray.is_initialized():
            return
        end = time.monotonic() + self._timeouts.shutdown
        if self._birth is not None and not self._busy:
            ray.wait([actor.close.remote()], timeout=self._timeouts.shutdown / 2)
        kill(actor, self._birth)
        wait_gone([self._birth] if self._birth else [], end)

    def __enter__(self) -> LearnerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, timeout: float, **kwargs: Any) -> Any:
        self.wait_ready()
        if self._actor is None:
            raise LearnerLostError("the learner is closed")
        return self._get(self._actor.apply.remote(getattr(self.actor_class, method), **kwargs), method, timeout)

    def _get(self, reference: Any, method: str, timeout: float) -> Any:
        import ray

        self._busy = True  # until it has answered: Ctrl-C may end the wait
        try:
            value = ray.get(reference, timeout=timeout)
            self._busy = False
        except ray.exceptions.GetTimeoutError:
            self.close()
            hint = f"; free: {_free()}" if method == "start" else ""
            raise LearnerLostError(f"the learner gave no answer to {method} within {timeout:g} s{hint}") from None
        except ray.exceptions.RayError as error:
            raise LearnerLostError(
                f"the learner died during {method} at version {self.policy_version} ({type(error).__name__})"
            ) from None
        if isinstance(value, Failure):
            raise value.error or ActorError(f"{method} failed in the learner: {value.kind}: {value.message}")
        return value


def _free() -> str:
    import ray

    return ", ".join(
        f"{amount:g} {name}" for name, amount in ray.available_resources().items() if name in ("CPU", "GPU")
    )
