"""A baseline or a candidate that is being played: built, given inputs, called, its outputs taken and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from judge import wire
from judge.compiler import Compiler
from judge.memory import NUMPY_TYPES, Arena, Array
from judge.process import ForeignFailure, Jailed, Zygote
from judge.reference import Case, Setup
from judge.types import Candidate, Status
from tasks.types import Task, Variant

_LASTING_CPU_SECONDS = 7 * 86400
"""Of a compiled baseline, which is used for many candidates."""


class Player:
    """One jailed process that runs Model or ModelNew."""

    def __init__(self, process: Jailed, deadline_seconds: tuple[float, float]) -> None:
        self._process = process
        self._load_seconds, self._call_seconds = deadline_seconds
        self._arena: Arena | None = None
        self._stopped = False
        self._outputs: tuple[wire.TensorSpec, ...] = ()
        self.own_seconds = 0.0
        """Of the last call by the process's own clock: forward alone, without the way through the wire. Only to be
        believed of a baseline."""

    @classmethod
    def of_candidate(cls, zygote: Zygote, compiler: Compiler, candidate: Candidate, deadline: float) -> Self:
        """Loads the candidate. Raises ForeignFailure: compile_error, runtime_error or timeout, with its own line."""
        player = cls(Jailed(zygote, "candidate", deadline), _limits(zygote))
        player._process.compile = compiler.compile
        compiler.last_error = ""
        try:
            with candidate_blamed(compiler):
                order = wire.LoadCandidate(code=candidate.code, products=compiler.products(candidate))
                player._ask(order, "to import")
        except BaseException:
            player.close()
            raise
        return player

    @classmethod
    def of_task(cls, zygote: Zygote, task: Task, variant: Variant, deadline: float, *, compiled: bool = False) -> Self:
        """A baseline; ``compiled`` by torch.compile, which needs to start compilers (GPU only)."""
        lasting: dict[str, object] | None = {"cpu_seconds": _LASTING_CPU_SECONDS} if compiled else None
        process = Jailed(zygote, "compiled" if compiled else "baseline", deadline, lasting)
        player = cls(process, _limits(zygote))
        request = wire.LoadTask(source=task.source, where=task.where, constants=variant.constants, compiled=compiled)
        try:
            player._ask(request, "to import")
        except BaseException:
            player.close()
            raise
        return player

    def prepare(self, setup: Setup, case: Case, *, guarded: bool = False, strided: bool = False) -> None:
        """Build the model with the reference's parameters and map memory for inputs like the case's; then stop.

        ``guarded``: results are made between guard bands. ``strided``: inputs are not contiguous. Neither is for
        calls that are timed.
        """
        if self._stopped:
            self._process.resume()
            self._stopped = False
        state = Arena(setup.arrays)
        try:
            request = wire.Construct(
                arguments=setup.arguments,
                tensors=tuple(state.specs),
                names=setup.names,
                size=state.size,
                backward=setup.backward,
                guarded=guarded,
            )
            self._ask(request, "to construct its model", state.fd)
        finally:
            state.close()
        if self._arena is not None:
            self._arena.close()
        self._arena = Arena(case.inputs)
        request_inputs = wire.MapInputs(
            arguments=case.arguments, tensors=tuple(self._arena.specs), size=self._arena.size, strided=strided
        )
        self._ask(request_inputs, "to take its inputs", self._arena.fd)
        self._process.stop()
        self._stopped = True

    def call(self, case: Case) -> float:
        """One call on the case's inputs: the slower of the judge's clock and the process's own, in seconds.

        Raises ForeignFailure, also for outputs unlike the reference's in kind.
        """
        assert self._arena is not None
        self._arena.write(case.inputs)
        elapsed, called = self._process.timed_call(self._call_seconds)
        check_kinds(called.outputs, case)
        self._outputs = called.outputs
        own = called.seconds if 0 <= called.seconds < self._call_seconds else 0.0
        self.own_seconds = own if 0 < own < elapsed else elapsed
        return max(elapsed, own)

    def outputs(self) -> tuple[Array, ...]:
        """What the last call returned, copied out of the process, which stands still since. Raises ForeignFailure."""
        copies = tuple(self._process.read(spec) for spec in self._outputs)
        self._process.check_still()
        return copies

    @property
    def layers(self) -> tuple[str, ...]:
        return self._process.layers

    def _ask(self, request: wire.Request, what: str, fd: int | None = None) -> wire.Reply:
        return self._process.ask(request, self._load_seconds, what, fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.close()
        if self._arena is not None:
            self._arena.close()
            self._arena = None


def _limits(zygote: Zygote) -> tuple[float, float]:
    return zygote.settings.load_seconds, zygote.settings.call_seconds


def explain(failure: ForeignFailure, compiler: Compiler) -> ForeignFailure:
    """The failure with the candidate's line, as a compile_error when its kernel did not compile."""
    if compiler.last_error and failure.status in (Status.RUNTIME_ERROR, Status.COMPILE_ERROR):
        return ForeignFailure(Status.COMPILE_ERROR, f"kernel: {compiler.last_error}")
    if failure.line:
        return ForeignFailure(failure.status, f"candidate line {failure.line}: {failure.message}", line=failure.line)
    return failure


@contextmanager
def candidate_blamed(compiler: Compiler) -> Iterator[None]:
    """Failures in here are told with the candidate's own line."""
    try:
        yield
    except ForeignFailure as failure:
        raise explain(failure, compiler) from None


def check_kinds(outputs: Sequence[wire.TensorSpec], case: Case) -> None:
    if len(outputs) != len(case.honest):
        raise ForeignFailure(
            Status.INCORRECT, f"forward returned {len(outputs)} tensors, the reference {len(case.honest)}"
        )
    for number, (spec, honest) in enumerate(zip(outputs, case.honest, strict=True)):
        which = f"output {number}" if len(outputs) > 1 else "the output"
        if spec.dtype != honest.dtype or spec.dtype not in NUMPY_TYPES:
            raise ForeignFailure(Status.INCORRECT, f"{which} is {spec.dtype}, should be {honest.dtype} ({case.label})")
        if tuple(spec.shape) != honest.data.shape:
            raise ForeignFailure(
                Status.INCORRECT,
                f"{which} has shape {list(spec.shape)[:16]}, should be {list(honest.data.shape)} ({case.label})",
            )


@dataclass(kw_only=True)
class ErrorTally:
    """The largest error seen, relative to what was allowed there."""

    max_error: float = 0.0
    tolerance: float | None = None

    def check(self, outputs: Sequence[Array], case: Case) -> None:
        """Compare every output with the truth. Raises ForeignFailure (incorrect)."""
        for index, (output, budget) in enumerate(zip(outputs, case.budgets, strict=True)):
            result = budget.check(output)
            worse = self.tolerance is None or result.max_error * self.tolerance >= self.max_error * result.tolerance
            if worse or not result.ok:
                self.max_error, self.tolerance = result.max_error, result.tolerance
            if not result.ok:
                which = f"output {index}: " if len(case.budgets) > 1 else ""
                raise ForeignFailure(
                    Status.INCORRECT,
                    f"{which}{result.message} ({case.label}; scaled error {result.max_error:.3g}, "
                    f"allowed {result.tolerance:.3g})",
                )
