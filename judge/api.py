"""The judge: a candidate that is wrong, or not faster, is never called a win, whatever its code does.

    with Judge(JudgeSettings()) as judge:
        verdict = judge.judge(load_task("row_softmax"), Candidate(code=...))

This process makes the decisions and runs neither task nor candidate code. Its helpers: a zygote (judge/zygote.py) that
jailed processes are forked from, one reference process per variant (judge/reference.py), fresh processes for each
verification and each timed pair (judge/player.py, judge/timing.py), g++ in a jail (judge/compiler.py).
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from traceback import clear_frames
from typing import Any

from judge.compiler import Compiler
from judge.errors import JudgeError, SandboxError
from judge.extension_builds import needs_builder
from judge.honest_work import RIGHT_WITHOUT_KERNELS
from judge.jail import LAYERS
from judge.lease import Lease
from judge.player import ErrorTally, Player, candidate_blamed
from judge.process import ForeignFailure, Zygote
from judge.reference import Reference
from judge.settings import JudgeSettings
from judge.static_rules import NO_CUSTOM_KERNEL, static_flags
from judge.statistics import Interval, agree
from judge.timing import Timing, faster_than_light, make_bank, time_candidate
from judge.types import Baselines, Candidate, Status, Verdict
from tasks.errors import TaskError
from tasks.types import Task


@dataclass(kw_only=True)
class _Findings:
    """What is known of a candidate so far; becomes its verdict."""

    flags: tuple[str, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    tally: ErrorTally = field(default_factory=ErrorTally)
    sandbox: tuple[str, ...] = ()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


_NO_ROOM = "the GPU's memory ran out while it ran, and was there again when it had ended"


def _speaks_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()


def _require_gpu() -> None:
    """Raises JudgeError."""
    remedy = "or judge on the CPU (judge.device=cpu)"
    try:
        import cupy
    except ImportError:
        raise JudgeError(
            f"judge.device is cuda, which needs CuPy: pip install cupy-cuda13x (of your CUDA version), {remedy}"
        ) from None
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise JudgeError(f"judge.device is cuda, but CUDA finds no GPU ({error}): check nvidia-smi, {remedy}") from None
    if not found:
        raise JudgeError(f"judge.device is cuda, but there is no GPU: check nvidia-smi, {remedy}")


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How a device is judged on: the same steps, other memory and clocks."""

    reference: Any
    player: Any
    bank: Callable[..., Any]
    time_candidate: Callable[..., Timing]
    faster_than_light: Callable[..., str]
    close: Callable[[], None] = lambda: None
    had_room: Callable[[], bool] = lambda: False
    """Whether memory that ran out was the candidate's doing: there is plenty now that it has ended."""
    errors: tuple[type[Exception], ...] = ()
    """Of the device, in the judge's own process."""


def _way(device: str) -> _Way:
    if device == "cuda":
        from judge import cuda_judging

        kept = cuda_judging.CudaTask()
        return _Way(
            reference=kept.reference,
            player=cuda_judging.CudaPlayer,
            bank=partial(cuda_judging.make_cuda_bank, kept),
            close=kept.close,
            had_room=cuda_judging.had_room,
            errors=cuda_judging.ERRORS,
            time_candidate=cuda_judging.time_candidate,
            faster_than_light=cuda_judging.faster_than_light,
        )
    return _Way(
        reference=Reference,
        player=Player,
        bank=lambda zygote, task, reference, like: make_bank(reference, zygote.settings),
        time_candidate=time_candidate,
        faster_than_light=faster_than_light,
    )


class Judge:
    """Judges one candidate at a time; not thread-safe. Holds a zygote until closed.

    Raises:
        SandboxError: settings.require_sandbox and this machine lacks a layer.
        JudgeError: the zygote does not start.
    """

    def __init__(self, settings: JudgeSettings | None = None) -> None:
        self.settings = settings or JudgeSettings()
        if self.settings.device == "cuda":
            _require_gpu()
        self._lease = Lease(self.settings.exclusive_timing)
        self._start()
        self._hardware = _hardware(self.settings, self._zygote.cores.numbers)

    def _start(self) -> None:
        self._zygote = Zygote(self.settings)
        self._compiler = Compiler(self._zygote)
        self._way = _way(self.settings.device)

    def judge(self, task: Task, candidate: Candidate) -> Verdict:
        """The verdict. Whatever the candidate does is a Verdict.

        Raises:
            TaskError: the task's own code fails.
            SandboxError: see the class.
        """
        last = ""
        ours: tuple[type[Exception], ...] = (JudgeError, OSError, MemoryError, *self._way.errors)
        for _ in range(2):
            findings = _Findings(flags=static_flags(candidate.code))
            try:
                return self._judge(task, candidate, findings)
            except ForeignFailure as failure:
                return self._failed(findings, failure)
            except SandboxError:
                raise
            except TaskError as error:
                if not (_speaks_of_memory(error) and self._way.had_room()):
                    raise
                return self._failed(findings, ForeignFailure(Status.RUNTIME_ERROR, _NO_ROOM))
            except ours as error:
                last = f"{type(error).__name__}: {error}"
                clear_frames(error.__traceback__)  # which hold on to what was allocated
                if _speaks_of_memory(error) and self._way.had_room():
                    return self._failed(findings, ForeignFailure(Status.RUNTIME_ERROR, _NO_ROOM))
                with suppress(*ours):
                    self._close()
                with suppress(JudgeError, OSError):  # the next attempt, or the next verdict, tries again
                    self._start()
        return self._verdict(findings, Status.JUDGE_ERROR, message=f"the judge failed: {last}")

    def _judge(self, task: Task, candidate: Candidate, findings: _Findings) -> Verdict:
        deadline = time.monotonic() + self.settings.total_seconds
        with self._lease.shared():
            if self.settings.device == "cuda":
                self._zygote.prefork(1 + self.settings.cuda_pairs * self.settings.timed)
            self._compiler.make_room()
            self._compiler.seconds = 0.0
            with candidate_blamed(self._compiler):
                self._compiler.build(task, candidate)
            deadline += self._compiler.seconds  # building has a limit of its own
            built_seconds, self._compiler.seconds = self._compiler.seconds, 0.0
            with findings.phase("load"):
                player = self._way.player.of_candidate(self._zygote, self._compiler, candidate, deadline)
            findings.seconds["compile"] = built_seconds + self._compiler.seconds
            findings.seconds["load"] -= self._compiler.seconds
            with player, findings.phase("verify"):
                bank = self._verify(task, player, findings, deadline)
        if bank is None:
            return self._verdict(findings, Status.CORRECT, message="verified, not timed (judge.timed=false)")
        with self._lease.exclusive(), findings.phase("time"):
            timing = self._time(task, candidate, bank, deadline, findings)
        if impossible := self._way.faster_than_light(timing, bank.cases, self.settings):
            raise ForeignFailure(Status.REJECTED, impossible)
        if timing.interval.speedup > self.settings.recheck_above:
            with self._lease.exclusive(), findings.phase("recheck"):
                timing = self._recheck(task, candidate, deadline, findings, timing)
        if timing.interval.low > self.settings.win_threshold and not needs_builder(candidate.code):
            with self._lease.shared(), findings.phase("recheck"):
                if self._is_right_without_kernels(task, candidate, deadline):
                    findings.flags = (*findings.flags, NO_CUSTOM_KERNEL, RIGHT_WITHOUT_KERNELS)
        return self._decide(findings, timing)

    def _verify(self, task: Task, player: Player, findings: _Findings, deadline: float) -> Any:
        """Every variant on every distribution; returns the cases for timing (variant "default"), None if untimed."""
        bank: Any = None
        guarded = "mentions torch.compile" not in findings.flags  # which cannot look into guarded calls
        for variant in task.variants_on(self.settings.device):
            with self._way.reference(self._zygote, task, variant, deadline) as reference:
                findings.sandbox = tuple(layer for layer in reference.layers if layer in player.layers)
                cases = [reference.case(distribution) for distribution in task.distributions]
                cases.append(reference.case(task.distributions[0]))
                with candidate_blamed(self._compiler):
                    player.prepare(reference.setup, cases[0], guarded=guarded)
                    self._verify_cases(player, cases, findings)
                    if task.strided:
                        turned = replace(cases[0], label=f"variant {variant.name}, inputs that are not contiguous")
                        player.prepare(reference.setup, turned, guarded=guarded, strided=True)
                        self._verify_cases(player, [turned], findings)
                if bank is None and self.settings.timed:
                    bank = self._way.bank(self._zygote, task, reference, cases[0])
        assert bank is not None or not self.settings.timed, "a task has a default variant"
        return bank

    def _verify_cases(self, player: Player, cases: Sequence[Any], findings: _Findings) -> None:
        for case in cases:
            player.call(case)
            findings.tally.check(player.outputs(), case)

    def _is_right_without_kernels(self, task: Task, candidate: Candidate, deadline: float) -> bool:
        """Whether its outputs are right when its kernels do nothing (judge/honest_work.py)."""
        variant = task.variants_on(self.settings.device)[0]
        self._compiler.asked, self._compiler.emptying = 0, True
        try:
            with self._way.reference(self._zygote, task, variant, deadline) as reference:
                case = reference.case(task.distributions[0])
                with self._way.player.of_candidate(self._zygote, self._compiler, candidate, deadline) as player:
                    player.prepare(reference.setup, case, guarded=True)
                    player.call(case)
                    ErrorTally().check(player.outputs(), case)
        except ForeignFailure:
            return False
        finally:
            self._compiler.emptying = False
        return self._compiler.asked > 0

    def _time(self, task: Task, candidate: Candidate, bank: Any, deadline: float, findings: _Findings) -> Timing:
        return self._way.time_candidate(self._zygote, self._compiler, task, candidate, bank, deadline, findings.tally)

    def _recheck(self, task: Task, candidate: Candidate, deadline: float, findings: _Findings, first: Timing) -> Timing:
        """Time again, on new pairs and on cases that no process of this candidate has seen.

        Returns the slower of the two. Raises ForeignFailure (rejected) when they differ.
        """
        variant = task.variants_on(self.settings.device)[0]
        with self._way.reference(self._zygote, task, variant, deadline) as reference:
            like = reference.case(task.distributions[0])
            bank = self._way.bank(self._zygote, task, reference, like)
        second = self._time(task, candidate, bank, deadline, findings)
        if not agree(first.interval, second.interval, self.settings.recheck_disagreement):
            raise ForeignFailure(
                Status.REJECTED,
                f"two measurements disagree: {first.interval.speedup:.2f}x, then {second.interval.speedup:.2f}x",
            )
        return min(first, second, key=lambda timing: timing.interval.low)

    def _decide(self, findings: _Findings, timing: Timing) -> Verdict:
        interval = timing.interval
        faster = interval.low > self.settings.win_threshold
        status = Status.WIN if faster and NO_CUSTOM_KERNEL not in findings.flags else Status.CORRECT
        shown = _towards_one(interval)
        text = (
            f"{shown.speedup:.2f}x [{shown.low:.2f}, {shown.high:.2f}] against {timing.best_baseline}, "
            f"{timing.pairs} process pairs"
        )
        if faster and status is Status.CORRECT:
            text += "; no win: it brings no kernel of its own"
        return self._verdict(
            findings,
            status,
            message=text,
            speedup=shown.speedup,
            speedup_low=shown.low,
            speedup_high=shown.high,
            candidate_ms=timing.candidate_ms,
            baselines=Baselines.model_validate({**timing.scouted_ms, timing.best_baseline: timing.baseline_ms}),
            best_baseline=timing.best_baseline,
            timed_as=timing.method,
            flags=(*findings.flags, *timing.notes),
            hardware={**self._hardware, **timing.hardware},
        )

    def _failed(self, findings: _Findings, failure: ForeignFailure) -> Verdict:
        return self._verdict(findings, failure.status, message=failure.message)

    def _verdict(self, findings: _Findings, status: Status, **values: object) -> Verdict:
        if not findings.sandbox:
            with suppress(JudgeError, OSError):  # a judge that cannot start a process has none to speak of
                findings.sandbox = self.layers()
        return Verdict.model_validate(
            {
                "status": status,
                "max_error": findings.tally.max_error if findings.tally.tolerance is not None else None,
                "tolerance": findings.tally.tolerance,
                "phase_seconds": {name: round(value, 4) for name, value in findings.seconds.items()},
                "flags": findings.flags,
                "sandbox": findings.sandbox,
                "hardware": self._hardware,
                **values,
            }
        )

    def layers(self) -> tuple[str, ...]:
        """Isolation layers that jailed processes of this judge have."""
        return self._probe()[0]

    def _probe(self) -> tuple[tuple[str, ...], dict[str, str]]:
        from judge.process import Jailed

        if not hasattr(self, "_layers"):
            with Jailed(self._zygote, "probe", time.monotonic() + self.settings.load_seconds) as process:
                self._layers = (process.layers, process.missing)
        return self._layers

    def missing_layers(self) -> dict[str, str]:
        """The others, with the reason."""
        layers, missing = self._probe()
        return {layer: missing.get(layer, "not raised") for layer in LAYERS if layer not in layers}

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._close()
        self._lease.close()

    def _close(self) -> None:
        try:
            self._way.close()
        finally:
            self._zygote.close()


def judge(task: Task, candidate: Candidate, settings: JudgeSettings | None = None) -> Verdict:
    """Judge one candidate with a judge of its own (a start costs about two seconds). Raises as Judge does."""
    with Judge(settings) as one:
        return one.judge(task, candidate)


def _towards_one(interval: Interval) -> Interval:
    """Rounded to thousandths toward 1: a report never shows more than was measured."""
    return Interval(
        speedup=_round_towards_one(interval.speedup),
        low=math.floor(interval.low * 1000) / 1000,
        high=math.ceil(min(interval.high, 1e9) * 1000) / 1000,
    )


def _round_towards_one(value: float) -> float:
    return math.floor(value * 1000) / 1000 if value > 1 else math.ceil(value * 1000) / 1000


def _hardware(settings: JudgeSettings, cores: list[int]) -> dict[str, str]:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    gpu: dict[str, str] = {}
    if settings.device == "cuda":
        from judge.cuda_device import describe

        gpu = describe()
    return {
        **gpu,
        "cpu": model,
        "cores": ",".join(map(str, cores)),
        "threads": str(settings.threads),
        "torch": metadata.version("torch"),
    }
