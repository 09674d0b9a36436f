"""What runs inside a jail on a GPU machine: as judge/runner.py, with tensors on the GPU and calls in batches.

A batch is one call for each slot, all enqueued, then one wait: the way to the process and back counts once for all of
them. Every slot has contents of its own. Where the model allows it, a batch is one CUDA graph of all its calls, so that
kernels of ten microseconds are not drowned in the time that Python needs to launch them.
"""

from __future__ import annotations

import copy
from typing import Any

import cupy
import numpy as np
import torch

from judge import load_cuda, wire
from judge.cuda_memory import allocation_of
from judge.gradients import WithGradients, draw_upstream
from judge.memory import NUMPY_TYPES
from judge.runner import Runner, _ForeignError, _give_parameters, _map_floats, _outputs, _redraw, _seed, strided_copies


class CudaRunner(Runner):
    """Runner with models and tensors on the GPU."""

    def start(self) -> None:
        """Make this process's CUDA context, before any foreign code runs."""
        torch.cuda.init()
        torch.cuda.set_device(0)
        torch.set_default_device("cuda")
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.zeros(1)
        torch.cuda.synchronize()
        self._slots: list[tuple[Any, ...]] = []
        self._graph: Any = None
        self._compile = False
        self._compiled: Any = None
        self._handles: dict[int, bytes] = {}
        self._places: dict[int, tuple[int, bytes]] = {}
        self._events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._mapped: dict[bytes, int] = {}

    def answer(self, request: wire.Request, fd: int | None) -> wire.Reply:
        match request:
            case wire.LoadTask():
                self._compile = request.compiled
                self.backward = request.backward
                if request.compiled:
                    import torch._inductor.config as inductor

                    inductor.compile_threads = 1
            case wire.LoadCandidate():
                load_cuda.set_compiler(self._ask_for_cubin)
                return super().answer(request, fd)
            case wire.MakeCases():
                return self._make_cases(request)
            case wire.MapSlots():
                return self._map_slots(request)
            case wire.Capture():
                return self._capture()
            case wire.CallBatch():
                return self._call_batch(request)
        return super().answer(request, fd)

    def _ask_for_cubin(self, source: str, options: tuple[str, ...]) -> Any:
        wire.send(self.sock, wire.Compile(source=source, language="cuda", options=options))
        reply, _ = wire.receive_request(self.sock)
        if not isinstance(reply, wire.Compiled) or reply.error:
            raise load_cuda.CompileError(reply.error if isinstance(reply, wire.Compiled) else "no answer")
        return cupy.RawModule(path=reply.path)

    def _make_init(self, seed: int) -> wire.Made:
        _seed(seed)
        arguments = self.module.get_init_inputs()
        self.model = self.module.Model(*arguments).to("cuda").eval()
        tensors: list[torch.Tensor] = []
        packed = wire.pack_value(tuple(arguments), tensors)
        state = self.model.state_dict()
        tensors += list(state.values())
        self.kept = [tensor.detach().cuda().contiguous() for tensor in tensors]
        return wire.Made(arguments=packed, tensors=self._specs(self.kept), names=tuple(state))

    def _draw(self, seed: int, distribution: str) -> tuple[Any, list[torch.Tensor], Any]:
        """(packed arguments, their tensors, arguments) of one call."""
        _seed(seed)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        arguments = _map_floats(
            _to_gpu(tuple(self.module.get_inputs())),
            lambda x: _redraw(x.detach(), distribution, generator).contiguous(),
        )
        if self.backward:
            arguments = arguments, draw_upstream(_outputs(self.model(*arguments)), generator)
        tensors: list[torch.Tensor] = []
        return wire.pack_value(arguments, tensors), tensors, arguments

    def _make_inputs(self, request: wire.MakeInputs) -> wire.Made:
        packed, tensors, arguments = self._draw(request.seed, request.distribution)
        before = [tensor.clone() for tensor in tensors]
        honest = [tensor.clone() for tensor in _outputs(self._whole(self.model)(*arguments))]
        for tensor, original in zip(tensors, before, strict=True):
            tensor.copy_(original)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            doubled = copy.deepcopy(self.model).double()
            truth = [t.clone() for t in _outputs(self._whole(doubled)(*_map_floats(arguments, lambda x: x.double())))]
        finally:
            torch.set_default_dtype(default)
        self.kept = [tensors, honest, truth]
        made = wire.Made(
            arguments=packed,
            tensors=self._specs(tensors),
            truth=self._specs(truth),
            honest=self._specs(honest),
            flops=self.flops_of(arguments),
        )
        torch.cuda.synchronize()
        return made

    def _make_cases(self, request: wire.MakeCases) -> wire.MadeCases:
        self.kept = []
        cases = []
        for seed in request.seeds:
            packed, tensors, arguments = self._draw(seed, "given")
            given = _map_floats(arguments, lambda x: x.clone())
            honest = [tensor.clone() for tensor in _outputs(self._whole(self.model)(*given))]
            self.kept.append((tensors, honest))
            cases.append(wire.Made(arguments=packed, tensors=self._specs(tensors), honest=self._specs(honest)))
        torch.cuda.synchronize()
        return wire.MadeCases(cases=tuple(cases))

    def _construct(self, request: wire.Construct, fd: int | None) -> wire.Done:
        tensors = [tensor.clone() for tensor in self._map(request.handle, request.tensors)]
        torch.cuda.synchronize()
        self._unmap_all_but(b"")
        first = len(tensors) - len(request.names)
        arguments = wire.unpack_value(request.arguments, tensors[:first])
        given = dict(zip(request.names, tensors[first:], strict=True))
        self._graph = None
        if self._compiled is not None:  # once compiled it is kept, with other parameters
            _give_parameters(self._compiled, given)
            torch.cuda.synchronize()
            return wire.Done()
        self.model = getattr(self.module, self.class_name)(*arguments)
        if isinstance(self.model, torch.nn.Module):
            self.model = self.model.to("cuda").eval()
            _give_parameters(self.model, given)
        if self._compile:
            self._compiled = self.model
            self.model = torch.compile(self.model, dynamic=False)
            if request.backward:
                self.backward, self.model = True, WithGradients(self.model, _outputs)
        else:
            self._wrap_model(request)
        torch.cuda.synchronize()
        return wire.Done()

    def _map_slots(self, request: wire.MapSlots) -> wire.Done:
        self._unmap_all_but(request.handle)
        self._slots = [
            tuple(wire.unpack_value(request.arguments, self._map(request.handle, specs))) for specs in request.slots
        ]
        self.strided = request.strided
        self._graph = None
        return wire.Done()

    def _unmap_all_but(self, handle: bytes) -> None:
        """What the judge has freed stays allocated while it is mapped here."""
        self._slots, self._graph, self.kept = [], None, []
        for other in [other for other in self._mapped if other != handle]:
            cupy.cuda.runtime.ipcCloseMemHandle(self._mapped.pop(other))

    def _map(self, handle: bytes, specs: tuple[wire.TensorSpec, ...]) -> list[torch.Tensor]:
        if not specs:
            return []
        if handle not in self._mapped:
            self._mapped[handle] = cupy.cuda.runtime.ipcOpenMemHandle(handle)
        base = self._mapped[handle]
        tensors = []
        for spec in specs:
            dtype = getattr(torch, spec.dtype)
            count = int(np.prod(spec.shape, dtype=np.int64))
            if count == 0:
                tensors.append(torch.empty(spec.shape, dtype=dtype))
                continue
            size = count * np.dtype(NUMPY_TYPES[spec.dtype]).itemsize
            memory = cupy.cuda.UnownedMemory(base + spec.place, size, self)
            flat = cupy.ndarray((size,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))
            tensors.append(torch.from_dlpack(flat).view(dtype).view(spec.shape))
        return tensors

    def _capture(self) -> wire.Captured:
        """Once as it is, so that everything is built and allocated, then recorded."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for arguments in self._slots[:2]:
                self.model(*arguments)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        outputs = []
        with torch.cuda.graph(graph):
            for arguments in self._slots:
                outputs.append(_outputs(self.model(*arguments)))
        torch.cuda.synchronize()
        self._graph, self.kept = graph, outputs
        return wire.Captured(outputs=tuple(self._specs(one) for one in outputs))

    def _call_batch(self, request: wire.CallBatch) -> wire.CalledBatch:
        start, end = self._events
        if request.replay:
            start.record()
            self._graph.replay()
            end.record()
            end.synchronize()
            return wire.CalledBatch(nonce=request.nonce, seconds=start.elapsed_time(end) * 1e-3)
        outputs = []
        self.kept = []
        start.record()
        for arguments in self._slots[: request.count]:
            if self.strided:
                arguments = strided_copies(arguments)
            result = self.model(*arguments)
            whole = type(result) is torch.Tensor and result.is_contiguous()
            outputs.append([result] if whole else _outputs(result))
        end.record()
        specs = tuple(self._specs(one) for one in outputs)  # while the GPU works
        self.kept = outputs
        torch.cuda.synchronize()
        return wire.CalledBatch(nonce=request.nonce, seconds=start.elapsed_time(end) * 1e-3, outputs=specs)

    def _specs(self, tensors: list[torch.Tensor]) -> tuple[wire.TensorSpec, ...]:
        specs = []
        for t in tensors:
            if t.device.type != "cuda":
                raise _ForeignError(wire.Failed(kind="outputs", message=f"an output is on {t.device}, not on the GPU"))
            dtype = str(t.dtype).removeprefix("torch.")
            if t.numel() == 0:
                specs.append(wire.TensorSpec(dtype=dtype, shape=tuple(t.shape), place=0))
                continue
            place, handle = self._place(t.data_ptr())
            specs.append(wire.TensorSpec(dtype=dtype, shape=tuple(t.shape), place=place, handle=handle))
        return tuple(specs)

    def _place(self, address: int) -> tuple[int, bytes]:
        """(offset, IPC handle) of an address. torch gives the same ones again and again: this lies in timed calls."""
        known = self._places.get(address)
        if known is None:
            base, _ = allocation_of(address)
            if base not in self._handles:
                try:
                    self._handles[base] = bytes(cupy.cuda.runtime.ipcGetMemHandle(base))
                except cupy.cuda.runtime.CUDARuntimeError:
                    message = "an output lies in an input's memory, or in none of cudaMalloc's: return a new tensor"
                    raise _ForeignError(wire.Failed(kind="outputs", message=message)) from None
            known = self._places[address] = address - base, self._handles[base]
        return known


def _to_gpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cuda()
    if isinstance(value, list | tuple):
        return type(value)(_to_gpu(item) for item in value)
    return value
