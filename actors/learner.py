"""The learner actor: one rank of the learner's engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from actors.member import Birth, Member
from judge.lease import Lease
from learner.settings import LearnerSettings
from learner.types import Sample, StepResult, WeightsVersion

if TYPE_CHECKING:
    from learner.engine import Engine


class LearnerActor(Member):
    """Each method is the engine's of the same name; all raise LearnerError as that does."""

    _engine: Engine | None = None
    _turn = Lease(enabled=False)

    def start(self, model_dir: str, settings: LearnerSettings, temperature: float, work_dir: str, seed: int) -> Birth:
        """Imports DeepSpeed and loads the model (10 to 20 s on two cores)."""
        from learner.engine import Engine

        self._turn = Lease(enabled=settings.gpus > 0)  # no judge of this machine times while the GPU learns
        with self._turn.shared():
            self._engine = Engine(
                Path(model_dir), settings, temperature=temperature, work_dir=Path(work_dir), seed=seed
            )
        return self.birth()

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "start comes first"
        return self._engine

    def step(self, samples: Sequence[Sample]) -> StepResult:
        with self._turn.shared():
            return self.engine.step(samples)

    def sft_step(self, samples: Sequence[Sample], lr_scale: float = 1.0) -> StepResult:
        with self._turn.shared():
            return self.engine.sft_step(samples, lr_scale)

    def probe(self, token_ids: Sequence[int]) -> tuple[float, ...]:
        with self._turn.shared():
            return tuple(self.engine.logprobs(list(token_ids)))

    def publish(self, folder: str) -> WeightsVersion:
        with self._turn.shared():
            return self.engine.publish(Path(folder))

    def lend(self) -> WeightsVersion:
        with self._turn.shared():
            return self.engine.lend()

    def save(self, folder: str) -> None:
        self.engine.save(Path(folder))

    def load(self, folder: str) -> int:
        """The policy_version that was loaded."""
        self.engine.load(Path(folder))
        return self.engine.policy_version

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None
