"""The judge's side of the reference jail: what a task's own code says about inputs and right answers."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from judge import wire
from judge.memory import NUMPY_TYPES, Array
from judge.process import ForeignFailure, Jailed, Zygote
from judge.verify import EPSILON, OutputBudget, make_budget, to_float
from tasks.errors import TaskError
from tasks.types import Task, Variant


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How Model was built: what ModelNew is built with too."""

    arguments: Any
    """Packed init inputs (wire.pack_value)."""
    arrays: tuple[Array, ...]
    """Tensors of the arguments, then the state_dict's."""
    names: tuple[str, ...]
    backward: bool = False
    """Whether calls give gradients too."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call's inputs with the truth."""

    arguments: Any
    inputs: tuple[Array, ...]
    honest: tuple[Array, ...]
    """The reference's outputs in its own dtype."""
    budgets: tuple[OutputBudget, ...]
    """Truth and tolerance of each output."""
    label: str
    """For messages: variant and distribution."""
    flops: int = 0
    """Of the honest run's matrix products and convolutions."""

    @property
    def nbytes(self) -> int:
        return self.moved_bytes + sum(int(budget.truth.nbytes) for budget in self.budgets)

    @property
    def moved_bytes(self) -> int:
        """Bytes that a call must read and write at least once."""
        return sum(array.nbytes for part in (self.inputs, self.honest) for array in part)


class Reference:
    """A task's Model of one variant in a jail of its own, which no candidate can reach."""

    def __init__(self, zygote: Zygote, task: Task, variant: Variant, deadline: float) -> None:
        """Loads the task and builds its Model. Raises TaskError when its code fails."""
        self._settings, self._task, self._variant = zygote.settings, task, variant
        self._flops = 0
        self._process = Jailed(zygote, "reference", deadline)
        try:
            request = wire.LoadTask(
                source=task.source, where=task.where, constants=variant.constants, backward=task.backward
            )
            self._ask(request, "importing it")
            self.setup = self._make_setup()
        except BaseException:
            self.close()
            raise

    def _make_setup(self) -> Setup:
        made = self._ask(wire.MakeInit(seed=secrets.randbits(63)), "get_init_inputs() or Model(...)")
        assert isinstance(made, wire.Made)
        return Setup(
            arguments=made.arguments,
            arrays=self._read(made.tensors),
            names=made.names,
            backward=self._task.backward,
        )

    def case(self, distribution: str) -> Case:
        """Fresh inputs from a secret seed, with truth and honest run. Raises TaskError."""
        request = wire.MakeInputs(seed=secrets.randbits(63), distribution=distribution)
        made = self._ask(request, f"get_inputs() or forward (variant {self._variant.name}, {distribution} inputs)")
        assert isinstance(made, wire.Made)
        truth, honest = self._read(made.truth), self._read(made.honest)
        self._flops = max(self._flops, made.flops)
        if [a.data.shape for a in truth] != [a.data.shape for a in honest]:
            raise TaskError(f"{self._task.where}: Model's float64 run returns other shapes than its own dtype's")
        return Case(
            arguments=made.arguments,
            inputs=self._read(made.tensors),
            honest=honest,
            budgets=tuple(self._budget(t, h) for t, h in zip(truth, honest, strict=True)),
            label=f"variant {self._variant.name}, {distribution} inputs",
            flops=self._flops,
        )

    def _budget(self, truth: Array, honest: Array) -> OutputBudget:
        epsilon = EPSILON.get(honest.dtype, 0.0)
        floor = max(self._settings.error_floor_ulps * epsilon, self._task.tolerance or 0.0) if epsilon else 0.0
        return make_budget(
            to_float(truth.data, truth.dtype),
            to_float(honest.data, honest.dtype),
            error_factor=self._settings.error_factor,
            floor=floor,
        )

    def _ask(self, request: wire.Request, what: str) -> wire.Reply:
        try:
            seconds = self._settings.load_seconds + self._settings.call_seconds
            return self._process.ask(request, seconds, what)
        except ForeignFailure as failure:
            line = f":{failure.line}" if failure.line else ""
            raise TaskError(f"{self._task.where}{line}: the reference fails in {what}: {failure.message}") from None

    def _read(self, specs: tuple[wire.TensorSpec, ...]) -> tuple[Array, ...]:
        for spec in specs:
            if spec.dtype not in NUMPY_TYPES:
                raise TaskError(f"{self._task.where}: tensors of dtype {spec.dtype} are not supported yet")
        try:
            return tuple(self._process.read(spec) for spec in specs)
        except ForeignFailure as failure:
            raise TaskError(f"{self._task.where}: {failure.message}") from None

    @property
    def layers(self) -> tuple[str, ...]:
        return self._process.layers

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.close()
