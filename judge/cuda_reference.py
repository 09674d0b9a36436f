"""The judge's side of the reference jail on a GPU: judge/reference.py with everything in the judge's own GPU memory."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from judge import cuda_verify, wire
from judge.cuda_memory import Mappings, copy_out, synchronize
from judge.memory import NUMPY_TYPES, Array
from judge.process import Zygote
from judge.reference import Case, Reference
from judge.verify import EPSILON
from tasks.errors import TaskError
from tasks.types import Task, Variant

_BATCH_BYTES = 2 << 30
"""What the reference holds at a time while it makes cases."""


class CudaReference(Reference):
    """A task's Model of one variant in a jail of its own, on the GPU."""

    def __init__(self, zygote: Zygote, task: Task, variant: Variant, deadline: float) -> None:
        self._mappings = Mappings()
        super().__init__(zygote, task, variant, deadline)

    def renew(self, deadline: float) -> None:
        """A model with new parameters, for another candidate. Raises TaskError."""
        self._process.deadline = deadline
        self.setup = self._make_setup()

    def cases(self, count: int, like: Case) -> list[Case]:
        """Fresh calls with inputs as the task gives them, for timing: no float64 truth, as wide a budget as ``like``.

        Raises TaskError.
        """
        at_a_time = max(1, min(64, _BATCH_BYTES // max(like.moved_bytes, 1)))
        made: list[Case] = []
        while len(made) < count:
            seeds = tuple(secrets.randbits(63) for _ in range(min(at_a_time, count - len(made))))
            reply = self._ask(wire.MakeCases(seeds=seeds), "get_inputs() or forward (timed calls)")
            assert isinstance(reply, wire.MadeCases)
            for one in reply.cases:
                honest = self._copies(one.honest)
                made.append(
                    replace(
                        like,
                        arguments=one.arguments,
                        inputs=self._copies(one.tensors),
                        honest=honest,
                        budgets=tuple(
                            cuda_verify.timed_budget(h, b) for h, b in zip(honest, like.budgets, strict=True)
                        ),
                        label="default shapes, a timed call",
                    )
                )
            synchronize()
        return made

    def _budget(self, truth: Array, honest: Array) -> cuda_verify.DeviceBudget:
        epsilon = EPSILON.get(honest.dtype, 0.0)
        floor = max(self._settings.error_floor_ulps * epsilon, self._task.tolerance or 0.0) if epsilon else 0.0
        return cuda_verify.make_budget(truth, honest, error_factor=self._settings.error_factor, floor=floor)

    def _read(self, specs: Sequence[wire.TensorSpec]) -> tuple[Array, ...]:
        arrays = self._copies(specs)
        synchronize()
        return arrays

    def _copies(self, specs: Sequence[wire.TensorSpec]) -> tuple[Array, ...]:
        """Enqueued; to be waited for before the reference goes on."""
        for spec in specs:
            if spec.dtype not in NUMPY_TYPES:
                raise TaskError(f"{self._task.where}: tensors of dtype {spec.dtype} are not supported yet")
        try:
            return tuple(copy_out(self._mappings, spec) for spec in specs)
        except OSError as error:
            raise TaskError(f"{self._task.where}: a tensor cannot be read from the GPU: {error.strerror}") from None

    def close(self) -> None:
        self._mappings.close()
        super().close()
