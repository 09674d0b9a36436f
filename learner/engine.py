"""The learner's engine: DeepSpeed around a policy, one process one rank.

engine = Engine(prepare_model("smollm2-135m-instruct"), settings, temperature=0.9, work_dir=Path("work"), seed=0)
result = engine.step(samples)        # one contrastive update
version = engine.publish(Path("weights"))
engine.save(Path("checkpoints/step-1"))
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from learner import checkpoints, publishing, runtime
from learner.errors import LearnerError
from learner.lending import Lender
from learner.losses import LossSums, policy_loss, supervised_loss
from learner.packing import MicroBatch, pack, pack_text, without_targets
from learner.policy import Policy
from learner.settings import LearnerSettings
from learner.types import Sample, StepResult, WeightsVersion


class Engine:
    """Holds the policy, its optimizer and its version. Not thread-safe; one in a process at a time.

    Every rank of a group is given the same samples and takes its share of the micro batches.
    """

    def __init__(
        self,
        model_dir: Path,
        settings: LearnerSettings,
        *,
        temperature: float,
        work_dir: Path,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        master_addr: str = "127.0.0.1",
        master_port: int = 0,
    ) -> None:
        """Loads the model and starts DeepSpeed (a few seconds for 135M parameters on a CPU).

        Args:
            model_dir: what ``prepare_model`` returned.
            temperature: of the rollouts; the policy's logits are divided by it in ``step``.
            work_dir: private to this engine; torch's extension builds and their locks live there.
            seed: of the adapters' initial values.
            master_port: where rank 0 listens; 0 picks a free port (one rank only).

        Raises:
            LearnerError: the model or the settings do not fit, or the group did not come together in time.
        """
        self.policy_version = 0
        self._model_dir = Path(model_dir)
        self._settings = settings
        self._temperature = temperature
        self._rank, self._world_size = rank, world_size
        runtime.start_distributed(Path(work_dir), rank, world_size, master_addr, master_port)
        runtime.set_threads(settings.threads)
        torch.manual_seed(seed)
        self._policy = Policy(self._model_dir, settings, seed)
        self._engine = runtime.start_deepspeed(self._policy, settings)
        self._device = self._engine.device
        self._policy.place_reference(self._device)
        self._lender = Lender()
        self._reference_due = False  # supervised steps have been taken since the reference policy was fixed

    def step(self, samples: Sequence[Sample]) -> StepResult:
        """One contrastive update (``settings.epochs`` passes over the samples) and a new policy version.

        The loss is divided by the completion tokens of all samples. A sample whose advantage is 0 is left out when
        there is no KL term (its gradient is zero), and still counts in the denominator. When nothing is left, nothing
        happens: no optimizer step, the same version, and the metric ``skipped`` is 1.

        The reference policy of the KL term is the policy as the first ``step`` after any ``sft_step`` finds it, so
        contrastive learning is held near what supervised learning has reached, not near the model before it.

        Raises:
            LearnerError: a sample that does not fit (see ``packing.pack``).
        """
        started = time.perf_counter()
        settings, temperature = self._settings, self._temperature
        denominator = float(sum(len(sample.completion_ids) for sample in samples))
        used = [s for s in samples if s.completion_ids and (s.advantage != 0.0 or settings.kl_coefficient > 0)]
        if not used:
            return StepResult(policy_version=self.policy_version, metrics={"skipped": 1.0, "tokens": 0.0})
        batches = self._share(pack(used, settings.micro_batch_tokens))
        if self._reference_due and settings.kl_coefficient > 0:
            self._policy.anchor_reference()
        self._reference_due = False
        seconds = {"reference": 0.0, "old": 0.0, "train": 0.0}
        reference: list[torch.Tensor | None] = [None] * len(batches)
        old: list[torch.Tensor | None] = [None] * len(batches)
        with _timed(seconds, "reference"):
            if settings.kl_coefficient > 0:
                reference = [self._evaluate(batch, temperature, reference=True) for batch in batches]
        with _timed(seconds, "old"):
            # In a single pass the policy before the step is the one that is differentiated: no pass of its own.
            if settings.epochs > 1:
                old = [self._evaluate(batch, temperature) for batch in batches]

        def loss_of(index: int, batch: MicroBatch) -> tuple[torch.Tensor, LossSums]:
            logprobs = self._engine(batch, temperature)
            before = old[index]
            return policy_loss(
                logprobs,
                old_logprobs=logprobs.detach() if before is None else before,
                behaviour_logprobs=batch.behaviour_logprobs,
                advantages=batch.advantages,
                reference_logprobs=reference[index],
                clip_low=settings.clip_low,
                clip_high=settings.clip_high,
                tis_cap=settings.tis_cap,
                kl_coefficient=settings.kl_coefficient,
                denominator=denominator,
                ratio_level=settings.ratio_level,
                sample_of=batch.sample_of,
            )

        with _timed(seconds, "train"):
            for _ in range(settings.epochs):
                sums, grad_norm = self._update(batches, loss_of, settings.lr)
        metrics = sums.metrics() | {
            "grad_norm": grad_norm,
            "samples": float(len(samples)),
            "samples_used": float(len(used)),
            "advantage_abs_mean": sum(abs(s.advantage) for s in samples) / len(samples),
            "policy_age_mean": self.policy_version - sum(s.policy_version for s in samples) / len(samples),
            "policy_age_max": float(self.policy_version - min(s.policy_version for s in samples)),
        }
        return self._finish(metrics, batches, seconds, started)

    def sft_step(self, samples: Sequence[Sample], lr_scale: float = 1.0) -> StepResult:
        """One supervised update: mean negative log-likelihood of the completion tokens, at temperature 1.

        Args:
            lr_scale: times ``settings.sft_lr``, for a schedule.
        """
        started = time.perf_counter()
        used = [sample for sample in samples if sample.completion_ids]
        if not used:
            return StepResult(policy_version=self.policy_version, metrics={"skipped": 1.0, "tokens": 0.0})
        batches = self._share(pack(used, self._settings.micro_batch_tokens))
        denominator = float(sum(len(sample.completion_ids) for sample in used))
        self._reference_due = True
        seconds = {"train": 0.0}
        with _timed(seconds, "train"):
            sums, grad_norm = self._update(
                batches,
                lambda _, batch: supervised_loss(self._engine(batch, 1.0), denominator=denominator),
                lr_scale * (self._settings.lr if self._settings.sft_lr is None else self._settings.sft_lr),
            )
        measured = sums.metrics()
        metrics = {name: measured[name] for name in ("loss", "tokens")}
        metrics |= {"grad_norm": grad_norm, "samples": float(len(samples))}
        return self._finish(metrics, batches, seconds, started)

    def logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """log p of tokens 1 .. n-1 of a text at temperature 1 under the current policy (n - 1 values, nats).

        Raises:
            LearnerError: fewer than two tokens.
        """
        if len(token_ids) < 2:
            raise LearnerError(f"logprobs need a text of at least 2 tokens, got {len(token_ids)}")
        batch = self._to_device(pack_text(token_ids))
        return [float(value) for value in self._evaluate(batch, 1.0)]

    def publish(self, folder: Path) -> WeightsVersion:
        """Writes the whole policy, adapters merged, as ``folder/v000007`` (complete when it exists) in bfloat16.

        With LoRA the adapter alone is in ``folder/v000007/adapter``.

        Only ``settings.keep_versions`` published versions stay. All ranks call it; rank 0 writes.

        Raises:
            LearnerError: the disk is full or the folder cannot be written.
        """
        state = self._policy.merged_state()
        adapter = self._policy.adapter()
        if self._rank > 0:
            for _ in state:  # takes part in the gathering, writes nothing
                pass
            return runtime.from_rank_zero(None)
        version = publishing.publish(
            state, self._model_dir, Path(folder), self.policy_version, self._settings.keep_versions, adapter
        )
        return runtime.from_rank_zero(version)

    def lend(self) -> WeightsVersion:
        """The whole policy, adapters merged, in memory of this machine, until the next call. All ranks call it.

        Raises:
            LearnerError: as ``learner.lending.Lender.lend``.
        """
        state = self._policy.merged_state(self._device)
        if self._rank > 0:
            for _ in state:
                pass
            return runtime.from_rank_zero(None)
        return runtime.from_rank_zero(self._lender.lend(state, self.policy_version))

    def save(self, folder: Path) -> None:
        """Writes trained weights, optimizer, random state and version as one folder that appears by rename.

        Raises:
            LearnerError: the disk is full or the folder cannot be written.
        """
        progress = {"policy_version": self.policy_version, "reference_due": self._reference_due}
        reference = self._policy.reference_state()
        checkpoints.save(self._engine, Path(folder), self._rank, self._identity(), progress, reference)

    def load(self, folder: Path) -> None:
        """Continues from what ``save`` wrote, bit for bit on a CPU with as many threads.

        Raises:
            LearnerError: no checkpoint there, or one of another model, rank count, ZeRO stage or LoRA shape.
        """
        progress, reference = checkpoints.load(self._engine, Path(folder), self._identity())
        self._policy.load_reference(reference)
        self.policy_version = int(progress["policy_version"])
        self._reference_due = bool(progress["reference_due"])

    def close(self) -> None:
        """Leaves the process group and frees the weights; safe to call twice."""
        self._lender.close()
        self._engine = self._policy = None  # type: ignore[assignment]
        with suppress(Exception):  # the group may be gone already when another rank died
            runtime.stop_distributed()

    def _identity(self) -> dict[str, Any]:
        lora = self._settings.lora
        return {
            "world_size": self._world_size,
            "zero_stage": self._settings.zero_stage,
            "dtype": self._settings.dtype,
            "lora": [lora.rank, lora.alpha, list(lora.targets)],
            "model": checkpoints.model_fingerprint(self._model_dir),
        }

    def _to_device(self, batch: MicroBatch) -> MicroBatch:
        moved = {
            field.name: value.to(self._device)
            for field in dataclasses.fields(batch)
            if isinstance(value := getattr(batch, field.name), torch.Tensor)
        }
        return dataclasses.replace(batch, **moved)

    def _share(self, batches: list[MicroBatch]) -> list[MicroBatch]:
        empty = without_targets(batches[0])
        batches = batches + [empty] * (-len(batches) % self._world_size)
        return [self._to_device(batch) for batch in batches[self._rank :: self._world_size]]

    @torch.no_grad()
    def _evaluate(self, batch: MicroBatch, temperature: float, *, reference: bool = False) -> torch.Tensor:
        # Through the engine, since ZeRO-3 gathers weights in the hooks of its forward.
        return self._engine(batch, temperature, reference=reference)

    def _update(
        self,
        batches: Sequence[MicroBatch],
        loss_of: Callable[[int, MicroBatch], tuple[torch.Tensor, LossSums]],
        lr: float,
    ) -> tuple[LossSums, float]:
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        total = LossSums()
        for index, batch in enumerate(batches):
            loss, sums = loss_of(index, batch)
            # Gradients are averaged over the ranks; the loss holds the global denominator already.
            self._engine.backward(loss * self._world_size)
            total.add(sums)
        self._engine.step()
        if self._world_size > 1:
            runtime.reduce_sums(total)
        return total, float(self._engine.get_global_grad_norm() or 0.0)

    def _finish(
        self, metrics: dict[str, float], batches: Sequence[MicroBatch], seconds: dict[str, float], started: float
    ) -> StepResult:
        self.policy_version += 1
        metrics["lr"] = float(self._engine.get_lr()[0])
        metrics["input_tokens"] = float(sum(batch.input_ids.numel() for batch in batches))
        metrics["micro_batches"] = float(len(batches))
        seconds["total"] = time.perf_counter() - started
        return StepResult(policy_version=self.policy_version, metrics=metrics, seconds=seconds)


class _timed:  # noqa: N801 - reads as a verb at its use
    """Adds the wall seconds of its block to ``seconds[name]``."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] += time.perf_counter() - self._start
