"""What runs inside the builder's jail: the candidate is imported and called, so that all that it builds is built.

Compilers may be started here, and nothing is timed, believed, or known of the judge's data: the inputs are the task's
own, drawn here.
"""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

import torch

from judge import load_cpp, wire
from judge.extension_builds import record_into
from judge.runner import Runner
from tasks.loader import variant_source


class BuilderRunner(Runner):
    """Runner of the builder's jail; its working folder is where products are left."""

    device = "cpu"

    def start(self) -> None:
        folder = str(Path.cwd())
        os.environ.update(HOME=folder, TMPDIR=folder, TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor")
        torch.set_default_device(self.device)

    def answer(self, request: wire.Request, fd: int | None) -> wire.Reply:
        match request:
            case wire.LoadCandidate():
                record_into(Path.cwd())
                self._ask_compilers()
                return self._load(request.code, "ModelNew")
            case wire.Rehearse():
                for constants in request.variants:
                    self._rehearse(variant_source(request.source, constants))
                return wire.Done()
        raise wire.WireError(f"unexpected {type(request).__name__}")

    def _ask_compilers(self) -> None:
        load_cpp.set_compiler(self._ask_judge_to_compile)

    def _rehearse(self, source: str) -> None:
        task = types.ModuleType("task")
        exec(compile(source, "<task>", "exec"), task.__dict__)
        arguments = _moved(tuple(task.get_init_inputs()), self.device)
        model = self.module.ModelNew(*arguments)
        if isinstance(model, torch.nn.Module):
            model = model.to(self.device).eval()
        for _ in range(2):
            model(*_moved(tuple(task.get_inputs()), self.device))
        if self.device == "cuda":
            torch.cuda.synchronize()


class CudaBuilderRunner(BuilderRunner):
    device = "cuda"

    def _ask_compilers(self) -> None:
        from judge import load_cuda

        super()._ask_compilers()
        load_cuda.set_compiler(self._ask_for_cubin)

    def _ask_for_cubin(self, source: str, options: tuple[str, ...]) -> Any:
        import cupy

        from judge import load_cuda

        wire.send(self.sock, wire.Compile(source=source, language="cuda", options=options))
        reply, _ = wire.receive_request(self.sock)
        if not isinstance(reply, wire.Compiled) or reply.error:
            raise load_cuda.CompileError(reply.error if isinstance(reply, wire.Compiled) else "no answer")
        return cupy.RawModule(path=reply.path)


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value
