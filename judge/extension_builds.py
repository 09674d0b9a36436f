"""torch's load_inline and Triton in two jails: built where compilers may be started, loaded where nothing may.

In the builder's jail ``record_into`` lets ``torch.utils.cpp_extension.load_inline`` (and ``load``) build for real and
keeps what came of it by content; Triton keeps its own cache. In the strict jails ``load_from`` answers the same calls
from there. Both sides find an extension by the arguments of its call.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from judge.load_cpp import CompileError

EXTENSIONS, TRITON = "extensions", "triton"
_ERROR = re.compile(
    r"^(?:[^\n:(]*/)?(?P<file>[\w.]+\.(?:cpp|cu|cuh|h))[:(](?P<line>\d+)(?:[:)][^\n]*?)?:? "
    r"(?:fatal )?error:? (?P<what>.*)$",
    re.M,
)
"""Of g++ (file:1:2: error: ...) and nvcc (file(1): error: ...)."""
_IGNORED = ("build_directory", "verbose", "keep_intermediates", "use_pch")


def needs_builder(code: str) -> bool:
    """Whether a candidate's text speaks of what only the builder can build."""
    return any(word in code for word in ("cpp_extension", "load_inline", "triton"))


def record_into(folder: Path) -> None:
    """Builder: build in this folder, and keep the shared objects there under the key of their call."""
    from torch.utils import cpp_extension

    (folder / EXTENSIONS).mkdir(exist_ok=True)
    (folder / TRITON).mkdir(exist_ok=True)
    os.environ.update(TRITON_CACHE_DIR=str(folder / TRITON), MAX_JOBS="2")
    _fix_platform()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def build(*arguments: Any, **named: Any) -> Any:
            bound = signature.bind(*arguments, **named)
            key = _key(original.__name__, signature, bound)
            scratch = folder / f"build-{key}"
            scratch.mkdir(exist_ok=True)
            for ignored in _IGNORED:
                bound.arguments.pop(ignored, None)
            bound.arguments["build_directory"] = str(scratch)
            try:
                module = original(*bound.args, **bound.kwargs)
            except RuntimeError as error:
                raise CompileError(summarise_build(str(error))) from None
            for built in scratch.glob("*.so"):
                shutil.copyfile(built, folder / EXTENSIONS / f"{key}.so")
            return module

        return build

    cpp_extension.load_inline = wrap(cpp_extension.load_inline)
    cpp_extension.load = wrap(cpp_extension.load)


def load_from(folder: Path) -> None:
    """Strict jail: answer the calls from what the builder left in this folder."""
    from torch.utils import cpp_extension

    os.environ["TRITON_CACHE_DIR"] = str(folder / TRITON)
    _fix_platform()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def load(*arguments: Any, **named: Any) -> Any:
            bound = signature.bind(*arguments, **named)
            path = folder / EXTENSIONS / f"{_key(original.__name__, signature, bound)}.so"
            bound.apply_defaults()
            return _import(str(bound.arguments["name"]), path, as_module=bound.arguments["is_python_module"])

        return load

    cpp_extension.load_inline = wrap(cpp_extension.load_inline)
    cpp_extension.load = wrap(cpp_extension.load)


def _fix_platform() -> None:
    """Triton finds its launcher under a hash of ``platform.architecture()``, which starts the command ``file``: in the
    strict jail that fails, the hash is another one, and Triton would compile anew where nothing can."""
    platform.architecture = lambda *_, **__: ("64bit", "ELF")


def _import(name: str, path: Path, *, as_module: bool) -> Any:
    try:
        if not as_module:
            import torch

            torch.ops.load_library(str(path))
            return None
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except (OSError, ImportError):
        raise CompileError(
            f"extension {name!r} was not built when the candidate was imported and called once: build it at import, "
            "with the same arguments each time"
        ) from None


def _key(function: str, signature: inspect.Signature, bound: inspect.BoundArguments) -> str:
    given = {name: value for name, value in bound.arguments.items() if name not in _IGNORED}
    return hashlib.sha256(repr((function, sorted(given.items()))).encode(errors="replace")).hexdigest()[:32]


def summarise_build(log: str) -> str:
    """The first three errors of g++ or nvcc in ninja's output, at most 600 characters."""
    found = _ERROR.findall(log)
    if found:
        return "; ".join(f"{file} line {line}: {what}" for file, line, what in found[:3])[:600]
    lines = [line.strip() for line in log.splitlines() if "error" in line.lower()] or log.strip().splitlines()
    return " / ".join(lines[-3:])[:600] or "the build failed without a message"
