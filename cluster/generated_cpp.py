"""A fast way to check and time generated C++ kernels: in this process, many compiled at once.

Only for kernels that this project's own generator wrote: they are trusted, and nothing here is isolated. The judge
remains the one that says what a win is; `warpsmith tasks corpus --judge SHARE` compares the two.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from judge.load_cpp import CppFunction, compile_command, parse_functions, summarise_errors
from judge.settings import JudgeSettings
from tasks.distributions import redrawn
from tasks.loader import variant_source

if TYPE_CHECKING:
    from tasks.procedural.generate import GeneratedTask
    from tasks.procedural.kernels import Kernel

MOST_TOGETHER = 40
"""Kernels in one file for the compiler."""
ROUNDS = 9
"""Timings of each kernel, in turn with the others and with PyTorch; fewer where a call is long."""
_SECONDS = 2e-4
"""Of one timing, at least; many calls where one is shorter."""
_MOST_SECONDS = 0.02
"""Of all timings of a kernel, from the third on."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A generated kernel with what was found of it."""

    kernel: Kernel
    fault: str = ""
    """Why it is wrong, in one line: a bug of the generator. Empty for a correct one."""
    microseconds: float = 0.0
    """Of one call, on the timed size: the lower quartile, since what else a machine does only adds."""
    eager_microseconds: float = 0.0
    """The same of PyTorch's."""

    @property
    def correct(self) -> bool:
        return not self.fault

    @property
    def speedup(self) -> float:
        """0 for what was not timed."""
        return self.eager_microseconds / self.microseconds if self.microseconds and self.correct else 0.0


def measure(
    tasks: Sequence[tuple[GeneratedTask, Sequence[Kernel]]], settings: JudgeSettings, *, timed: bool = True
) -> list[list[Measured]]:
    """Compile the kernels, check them on every CPU size and input distribution, and time the correct ones.

    Checked as judge/verify.py does, against a float64 run of the reference, with the judge's tolerances.

    Args:
        settings: threads, compiler, flags and tolerances.
        timed: False leaves the times at 0.

    Raises ConfigError: there is no compiler.
    """
    import torch

    if shutil.which(settings.cxx) is None:
        raise ConfigError(f"no {settings.cxx} on PATH: install a C++ compiler (Debian: apt-get install g++)")
    torch.set_num_threads(settings.threads)
    _keep_memory()
    sources = [cpp_source(kernel.code) for _, kernels in tasks for kernel in kernels]
    with tempfile.TemporaryDirectory(prefix="warpsmith-generated-") as folder:
        functions = iter(_compiled(sources, settings, Path(folder)))  # or why one does not compile
        _set_threads(settings.threads)
        results = []
        for task, kernels in tasks:
            results.append(_measure_task(task, [(k, next(functions)) for k in kernels], settings, timed))
    return results


def cpp_source(code: str) -> str:
    """The C++ text of a generated candidate: the argument of its load_cpp."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load_cpp":
            return str(ast.literal_eval(node.args[0]))
    raise ConfigError("a generated candidate has no load_cpp")


def _compiled(sources: Sequence[str], settings: JudgeSettings, folder: Path) -> list[CppFunction | str]:
    """Each source's function ``run``, or the compiler's first errors. Sources with fast-math and those without are kept
    apart: the header that they share differs."""
    found: dict[int, CppFunction | str] = {}
    parts = []
    for wanted in (False, True):
        group = [i for i, source in enumerate(sources) if ("fast-math" in source) == wanted]
        parts += [group[start : start + MOST_TOGETHER] for start in range(0, len(group), MOST_TOGETHER)]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for made in pool.map(lambda part: _compile_part(part, sources, settings, folder), parts):
            found |= made
    return [found[i] for i in range(len(sources))]


def _compile_part(
    part: Sequence[int], sources: Sequence[str], settings: JudgeSettings, folder: Path
) -> dict[int, CppFunction | str]:
    """One file for the compiler; where it fails, its halves are tried, down to the kernel that is at fault."""
    library = _compile_together([sources[i] for i in part], settings, folder / f"part_{part[0]}_{len(part)}")
    if isinstance(library, str):
        if len(part) == 1:
            return {part[0]: library}
        half = len(part) // 2
        return _compile_part(part[:half], sources, settings, folder) | _compile_part(
            part[half:], sources, settings, folder
        )
    return {
        i: CppFunction("run", parse_functions(sources[i])["run"], getattr(library, f"run_{place}"))
        for place, i in enumerate(part)
    }


def _compile_together(sources: Sequence[str], settings: JudgeSettings, stem: Path) -> ctypes.CDLL | str:
    head = dict.fromkeys(line for source in sources for line in source.splitlines() if line.startswith("#"))
    texts = [line for line in head if not line.startswith("#include")]
    texts += [line for line in head if line.startswith("#include")]
    for place, source in enumerate(sources):
        body = "\n".join(line for line in source.splitlines() if not line.startswith("#"))
        texts.append(f"namespace k{place} {{\n{body.replace(' run(', f' run_{place}(')}\n}}")
    source_path, out_path = stem.with_suffix(".cpp"), stem.with_suffix(".so")
    source_path.write_text("\n".join(texts), encoding="utf-8")
    done = subprocess.run(
        compile_command(str(source_path), str(out_path), settings.cxx, settings.cxx_flags),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"does not compile: {summarise_errors(done.stderr, str(source_path))}"
    return ctypes.CDLL(str(out_path))


def _keep_memory() -> None:
    """Have malloc keep what is freed, as in the judge's jails: a page fault for each fresh page would be most of what
    PyTorch's intermediate results take here, and would flatter every kernel."""
    import torch

    mmap_threshold, trim_threshold = -3, -1  # of mallopt(3)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 << 20)
        libc.mallopt(trim_threshold, 1 << 30)
        pieces = [torch.ones(1 << 20) for _ in range(16)]
        del pieces


def _set_threads(number: int) -> None:
    """Of the OpenMP runtime that the compiler links; torch brings its own."""
    try:
        ctypes.CDLL("libgomp.so.1").omp_set_num_threads(number)
    except (OSError, AttributeError):
        return


def _measure_task(
    task: GeneratedTask, kernels: Sequence[tuple[Kernel, CppFunction | str]], settings: JudgeSettings, timed: bool
) -> list[Measured]:
    import torch

    faults = [function if isinstance(function, str) else "" for _, function in kernels]
    whole = {i: _model_new(k.code, f) for i, (k, f) in enumerate(kernels) if not isinstance(f, str)}
    with torch.no_grad():
        for shape in reversed(task.shapes.cpu):  # the timed one last: its inputs are in the caches
            constants = next(v.constants for v in task.task.variants if v.name == shape.name)
            module = _run_module(variant_source(task.source, constants))
            torch.manual_seed(task.seed)
            model = module["Model"](*module["get_init_inputs"]()).eval()
            mine = {i: _constructed(one, module, model) for i, one in whole.items()}
            for distribution in ("given", "shifted", "large", "ties") if shape.held_out else ("given",):
                inputs = [redrawn(x, distribution) for x in module["get_inputs"]()]
                for i, fault in zip(mine, _faults(model, list(mine.values()), inputs, settings), strict=True):
                    faults[i] = faults[i] or (f"{shape.name}, {distribution}: {fault}" if fault else "")
        good = [i for i, fault in enumerate(faults) if not fault]
        times = _times([model, *(mine[i] for i in good)], inputs) if timed and good else []
    by_kernel = dict(zip(good, times[1:], strict=False))
    return [
        Measured(
            kernel=kernel,
            fault=faults[i],
            microseconds=by_kernel.get(i, 0.0),
            eager_microseconds=times[0] if times else 0.0,
        )
        for i, (kernel, _) in enumerate(kernels)
    ]


class _Module:
    """In place of what load_cpp returns."""

    def __init__(self, run: CppFunction) -> None:
        self.run = run


class _Warpsmith:
    """In place of the package, for a candidate that is already compiled."""

    def __init__(self, run: CppFunction) -> None:
        self._run = run

    def load_cpp(self, source: str) -> _Module:
        return _Module(self._run)


def _model_new(code: str, function: CppFunction) -> Any:
    def bring(name: str, *arguments: Any) -> Any:
        return _Warpsmith(function) if name == "warpsmith" else builtins.__import__(name, *arguments)

    return _run_module(code, {**vars(builtins), "__import__": bring})["ModelNew"]


def _run_module(source: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "generated", "__builtins__": names or vars(builtins)}
    exec(compile(source, "<generated>", "exec"), scope)
    return scope


def _constructed(model_new: Any, module: dict[str, Any], model: Any) -> Any:
    made = model_new(*module["get_init_inputs"]()).eval()
    made.load_state_dict(model.state_dict())
    return made


def _faults(model: Any, mine: Sequence[Any], inputs: Sequence[Any], settings: JudgeSettings) -> list[str]:
    """What is wrong with each one's outputs; empty texts for correct ones."""
    import copy

    from judge.verify import EPSILON, check, make_budget

    honest = _tensors(model(*inputs))
    truth = _tensors(copy.deepcopy(model).double()(*(x.double() for x in inputs)))
    budgets = [
        make_budget(
            t.numpy(),
            h.numpy(),
            error_factor=settings.error_factor,
            floor=settings.error_floor_ulps * EPSILON["float32"],
        )
        for t, h in zip(truth, honest, strict=True)
    ]
    found = []
    for one in mine:
        outputs = _tensors(one(*inputs))
        fault = ""
        for output, budget, h in zip(outputs, budgets, honest, strict=True):
            if output.shape != h.shape:
                fault = fault or f"its output is {tuple(output.shape)}, should be {tuple(h.shape)}"
                continue
            compared = check(output.numpy(), budget)
            if not compared.ok:
                fault = fault or f"{compared.message}, error {compared.max_error:.2g} of {compared.tolerance:.2g}"
        found.append(fault)
    return found


def _tensors(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def _times(models: Sequence[Any], inputs: Sequence[Any]) -> list[float]:
    """Microseconds of a call of each, measured in turn: the lower quartile."""
    calls = []
    for model in models:
        model(*inputs)
        began = time.perf_counter()
        model(*inputs)
        calls.append(max(1, min(200, round(_SECONDS / max(time.perf_counter() - began, 1e-7)))))
    times: list[list[float]] = [[] for _ in models]
    for number in range(ROUNDS):
        for model, count, own in zip(models, calls, times, strict=True):
            if number > 2 and sum(own) * count > _MOST_SECONDS * 1e6:
                continue
            began = time.perf_counter()
            for _ in range(count):
                model(*inputs)
            own.append((time.perf_counter() - began) / count * 1e6)
    return [sorted(own)[len(own) // 4] for own in times]


def machine(settings: JudgeSettings) -> dict[str, str]:
    """The hardware as verdicts name it, as far as prompts show it."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return {"cpu": name, "threads": str(settings.threads)}
