"""What runs inside a jail: task code in the reference and the baselines, candidate code in the candidates.

Nothing that this process says is believed: the judge copies the outputs' bytes out of its memory while it stands
still, and times it with a clock of its own. So foreign code may patch anything here without gaining by it.
"""

from __future__ import annotations

import contextlib
import copy
import linecache
import mmap
import random
import socket
import sys
import time
import traceback
import types
import warnings
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from judge import load_cpp, wire
from judge.extension_builds import load_from
from judge.gradients import GradientError, WithGradients, draw_upstream
from judge.guards import Guards
from judge.memory import NUMPY_TYPES
from judge.operations import OperationCounter
from tasks.distributions import redrawn
from tasks.loader import variant_source
from tasks.types import DISTRIBUTIONS

MAX_OUTPUTS = 64
_FOREIGN = "<foreign>"
_DTYPE_NAMES = {getattr(torch, name): name for name in NUMPY_TYPES}


class _ForeignError(Exception):
    """Something that foreign code did wrong, ready to be told to the judge."""

    def __init__(self, failed: wire.Failed) -> None:
        self.failed = failed


class Runner:
    """The state of one jailed process: the module it loaded, the model it built, what it returned last."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.module = types.ModuleType("candidate")
        self.class_name = "Model"
        self.model: Any = None
        self.arguments: tuple[Any, ...] = ()
        self.kept: list[Any] = []
        """Tensors whose addresses the judge has: they must live until it has read them."""
        self.padding: list[Any] = []
        self.backward = False
        """Whether the task's calls give gradients too (the reference)."""
        self.strided = False
        self.counted = False

    def start(self) -> None:
        """Before any foreign code runs."""
        self.padding = _shift_heap()

    def answer(self, request: wire.Request, fd: int | None) -> wire.Reply:
        match request:
            case wire.LoadTask():
                self.backward = request.backward
                # Not the task's file name: frames are found by this one, whatever the path.
                return self._load(variant_source(request.source, request.constants), "Model")
            case wire.LoadCandidate():
                load_cpp.set_compiler(self._ask_judge_to_compile)
                if request.products:
                    load_from(Path(request.products))
                return self._load(request.code, "ModelNew")
            case wire.MakeInit():
                return self._make_init(request.seed)
            case wire.MakeInputs():
                return self._make_inputs(request)
            case wire.Construct():
                return self._construct(request, fd)
            case wire.MapInputs():
                tensors = _map_tensors(fd, request.size, request.tensors)
                _warm_heap(8 * request.size)
                self.arguments = tuple(wire.unpack_value(request.arguments, tensors))
                self.strided = request.strided
                return wire.Done()
        raise wire.WireError(f"unexpected {type(request).__name__}")

    def _load(self, source: str, class_name: str) -> wire.Reply:
        try:
            code = compile(source, _FOREIGN, "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", 0) or 0
            raise _ForeignError(
                wire.Failed(kind="syntax", message=f"not Python: {getattr(error, 'msg', error)}", line=line)
            ) from None
        self.module.__file__ = _FOREIGN
        # Triton reads a kernel's text back, as tracebacks do.
        linecache.cache[_FOREIGN] = (len(source), None, source.splitlines(keepends=True), _FOREIGN)
        sys.modules[self.module.__name__] = self.module
        exec(code, self.module.__dict__)
        self.class_name = class_name
        if not isinstance(getattr(self.module, class_name, None), type):
            raise _ForeignError(wire.Failed(kind="exception", message=f"it defines no class {class_name}"))
        return wire.Done()

    def _make_init(self, seed: int) -> wire.Made:
        _seed(seed)
        arguments = self.module.get_init_inputs()
        self.model = self.module.Model(*arguments).eval()
        tensors: list[torch.Tensor] = []
        packed = wire.pack_value(tuple(arguments), tensors)
        state = self.model.state_dict()
        tensors += list(state.values())
        self.kept = [tensor.detach().contiguous() for tensor in tensors]
        return wire.Made(arguments=packed, tensors=_specs(self.kept), names=tuple(state))

    def _make_inputs(self, request: wire.MakeInputs) -> wire.Made:
        _seed(request.seed)
        generator = torch.Generator().manual_seed(request.seed)
        arguments = _map_floats(
            tuple(self.module.get_inputs()), lambda x: _redraw(x.detach(), request.distribution, generator).contiguous()
        )
        if self.backward:
            arguments = arguments, draw_upstream(_outputs(self.model(*arguments)), generator)
        tensors: list[torch.Tensor] = []
        packed = wire.pack_value(arguments, tensors)
        before = [tensor.clone() for tensor in tensors]
        honest = [tensor.clone() for tensor in _outputs(self._whole(self.model)(*arguments))]
        for tensor, original in zip(tensors, before, strict=True):
            tensor.copy_(original)  # a reference that writes to its inputs must not change what others are given
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            doubled = copy.deepcopy(self.model).double()
            truth = _outputs(self._whole(doubled)(*_map_floats(arguments, lambda x: x.double())))
        finally:
            torch.set_default_dtype(default)
        self.kept = [tensors, honest, truth]
        return wire.Made(
            arguments=packed,
            tensors=_specs(tensors),
            truth=_specs(truth),
            honest=_specs(honest),
            flops=self.flops_of(arguments),
        )

    def flops_of(self, arguments: Any) -> int:
        """Floating-point operations of the products and convolutions of one more call, counted once; else 0."""
        first, self.counted = not self.counted, True
        if not first:
            return 0
        try:
            with OperationCounter() as counter:
                self._whole(self.model)(*_map_floats(arguments, lambda x: x.clone()))
            return counter.total
        except Exception:  # an operation that the counter cannot follow: there is no limit by products then
            return 0

    def _construct(self, request: wire.Construct, fd: int | None) -> wire.Done:
        tensors = _map_tensors(fd, request.size, request.tensors)
        first = len(tensors) - len(request.names)
        arguments = wire.unpack_value(request.arguments, [tensor.clone() for tensor in tensors[:first]])
        self.model = getattr(self.module, self.class_name)(*arguments)
        if isinstance(self.model, torch.nn.Module):
            self.model.eval()
            _give_parameters(self.model, dict(zip(request.names, tensors[first:], strict=True)))
        self._wrap_model(request)
        return wire.Done()

    def _wrap_model(self, request: wire.Construct) -> None:
        """In what a call of this model is besides forward."""
        self.backward = request.backward
        self.model = self._whole(self.model)
        if request.guarded:
            self.model = _Guarded(self.model)

    def _whole(self, model: Any) -> Any:
        """What is called: the model, or the model and its gradients."""
        return WithGradients(model, _outputs) if self.backward else model

    def call(self, call: wire.Call) -> wire.Called:
        arguments = strided_copies(self.arguments) if self.strided else self.arguments
        began = time.perf_counter()
        result = self.model(*arguments)
        outputs = [result] if type(result) is torch.Tensor and result.is_contiguous() else _outputs(result)
        seconds = time.perf_counter() - began
        self.kept = outputs
        return wire.Called(nonce=call.nonce, seconds=seconds, outputs=_specs(outputs))

    def _ask_judge_to_compile(self, source: str) -> str:
        wire.send(self.sock, wire.Compile(source=source))
        reply, _ = wire.receive_request(self.sock)
        if not isinstance(reply, wire.Compiled) or reply.error:
            raise load_cpp.CompileError(reply.error if isinstance(reply, wire.Compiled) else "no answer")
        return reply.path


class _Guarded:
    """A model whose calls run between guard bands. Raises _ForeignError when one was written to."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, *arguments: Any) -> Any:
        with Guards() as guards:
            result = self._model(*arguments)
        if damage := guards.damage():
            raise _ForeignError(wire.Failed(kind="outputs", message=damage))
        return result


def strided_copies(value: Any) -> Any:
    """Floating tensors of two dimensions and more as copies whose last two dimensions lie the other way round."""
    if isinstance(value, torch.Tensor):
        if value.dim() < 2 or not value.is_floating_point():
            return value
        return value.transpose(-1, -2).contiguous().transpose(-1, -2)
    if isinstance(value, list | tuple):
        return type(value)(strided_copies(item) for item in value)
    return value


def serve(kind: type[Runner], sock: socket.socket, layers: tuple[str, ...], missing: dict[str, str]) -> NoReturn:
    """Answer the judge until it hangs up; never returns."""
    import os

    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    torch.set_grad_enabled(False)
    runner = kind(sock)
    runner.start()
    wire.send(sock, wire.Ready(layers=layers, missing=missing))
    while True:
        try:
            request, fd = wire.receive_request(sock)
        except (wire.WireError, OSError):
            os._exit(0)
        try:
            reply = runner.call(request) if isinstance(request, wire.Call) else runner.answer(request, fd)
        except _ForeignError as error:
            reply = error.failed
        except GradientError as error:
            reply = wire.Failed(kind="outputs", message=str(error))
        except BaseException as error:  # foreign code may raise anything, SystemExit included
            what = "compile" if isinstance(error, load_cpp.CompileError) else "exception"
            reply = wire.Failed(kind=what, message=_describe(error), line=_foreign_line(error))
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)
        wire.send(sock, reply)


def _shift_heap() -> list[torch.Tensor]:
    """Move where the next tensors will lie by a random amount; the result must be kept.

    All processes of a zygote inherit one address space layout: without this the pairs of a judge would share one luck
    of alignment, and their spread would say nothing of it.
    """
    generator = random.SystemRandom()
    return [torch.empty(16 * generator.randrange(1, 1 << 12)) for _ in range(4)]


def _warm_heap(size: int) -> None:
    """Have the kernel hand over memory now: what is freed here is kept by malloc and given out again.

    A new output that lies on fresh pages costs a page fault for each, which made kernels up to three times slower in
    some calls and not in others. Baselines, whose temporaries are freed and reused, hardly ever paid it.
    """
    piece = 4 << 20  # well below malloc's threshold for memory of its own, which is never kept
    count = min(size, 256 << 20) // piece + 1
    pieces = [torch.zeros(piece // 4).fill_(1) for _ in range(count)]
    del pieces


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split()).split(" Search for `")[0]  # CUDA's advice on debugging is longer than the fault
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__


def _foreign_line(error: BaseException) -> int:
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FOREIGN]
    return lines[-1] if lines else 0


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))


def _redraw(x: torch.Tensor, distribution: str, generator: torch.Generator) -> torch.Tensor:
    if distribution not in DISTRIBUTIONS:
        raise wire.WireError(f"no distribution {distribution}")
    return redrawn(x, distribution, generator)


def _map_floats(value: Any, change: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() else value.contiguous()
    if isinstance(value, list | tuple):
        return type(value)(_map_floats(item, change) for item in value)
    return value


def _outputs(result: Any) -> list[torch.Tensor]:
    """The tensors of a forward's result, contiguous. Raises _ForeignError for anything else."""
    found = list(result) if isinstance(result, list | tuple) else [result]
    if not 0 < len(found) <= MAX_OUTPUTS:
        raise _ForeignError(wire.Failed(kind="outputs", message=f"forward returned {len(found)} values"))
    for item in found:
        if type(item) not in (torch.Tensor, torch.nn.Parameter):
            raise _ForeignError(
                wire.Failed(kind="outputs", message=f"forward returned a {type(item).__name__}, not a torch.Tensor")
            )
    return [item.contiguous() for item in found]


def _specs(tensors: list[torch.Tensor]) -> tuple[wire.TensorSpec, ...]:
    return tuple(
        wire.TensorSpec(
            dtype=_DTYPE_NAMES.get(t.dtype) or str(t.dtype).removeprefix("torch."),
            shape=tuple(t.shape),
            place=t.data_ptr(),
        )
        for t in tensors
    )


def _map_tensors(fd: int | None, size: int, specs: tuple[wire.TensorSpec, ...]) -> list[torch.Tensor]:
    if fd is None:
        return []
    shared = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    tensors = []
    for spec in specs:
        dtype = getattr(torch, spec.dtype)
        count = int(np.prod(spec.shape, dtype=np.int64))
        flat = (
            torch.frombuffer(shared, dtype=dtype, count=count, offset=spec.place)
            if count
            else torch.empty(0, dtype=dtype)
        )
        tensors.append(flat.view(spec.shape))
    return tensors


def _give_parameters(model: torch.nn.Module, given: dict[str, torch.Tensor]) -> None:
    """By name where the names are Model's, else by order and shape."""
    own = model.state_dict()
    if not own or not given:
        return
    if own.keys() != given.keys():
        if [t.shape for t in own.values()] != [t.shape for t in given.values()]:
            raise _ForeignError(
                wire.Failed(
                    kind="exception",
                    message="ModelNew's parameters are not Model's: it has "
                    f"{', '.join(f'{k} {list(t.shape)}' for k, t in list(own.items())[:6])}; Model has "
                    f"{', '.join(f'{k} {list(t.shape)}' for k, t in list(given.items())[:6])}",
                )
            )
        given = dict(zip(own, given.values(), strict=True))
    model.load_state_dict({name: tensor.clone() for name, tensor in given.items()})
