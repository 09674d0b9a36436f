"""g++ in a jail of its own, on the judge's order: no candidate code ever has the right to start a program.

The shared objects lie in a folder of the judge's that jailed processes may open files in but not list; the names are
keyed with a secret of this judge, so that nobody finds another candidate's kernel. The same source is compiled once.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import signal
import stat
import time
from pathlib import Path

from judge import wire
from judge.errors import SignatureError
from judge.extension_builds import needs_builder
from judge.honest_work import emptied
from judge.load_cpp import compile_command, summarise_errors
from judge.process import ForeignFailure, Jailed, Zygote, await_end
from judge.products import keep_products
from judge.types import Candidate
from judge.wire import Compile, Compiled
from tasks.types import Task

MAX_SOURCE = 1 << 20
MAX_OBJECT = 16 << 20
"""Bytes of one shared object."""
KEPT_BYTES = 512 << 20
"""Shared objects are kept between candidates up to this."""


class Compiler:
    """Compiles for one judge; what it made goes with the zygote's folder."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._secret = secrets.token_bytes(32)
        self._cxx = shutil.which(zygote.settings.cxx) or ""
        self._done: dict[str, Compiled] = {}
        self._products: dict[str, str] = {}
        self._kept_bytes = 0
        self.seconds = 0.0
        """Spent compiling since this was last set to 0."""
        self.last_error = ""
        """Of the latest failed compilation since this was last emptied."""
        self.asked = 0
        """Compilations asked for since this was last set to 0."""
        self.emptying = False
        """Whether functions are compiled with nothing in them (judge/honest_work.py)."""

    def compile(self, order: Compile) -> Compiled:
        """Path of the shared object or cubin, or the compiler's first errors. Never raises for what the source does."""
        began = time.monotonic()
        if self.emptying:
            try:
                order = emptied(order)
            except SignatureError as error:
                return Compiled(path="", error=str(error))
        self.asked += 1
        key = "\0".join((order.language, *order.options, order.source))
        name = hmac.new(self._secret, key.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()
        if name not in self._done:
            self._done[name] = self._compile(order, name)
        result = self._done[name]
        self.seconds += time.monotonic() - began
        if result.error:
            self.last_error = result.error
        return result

    def build(self, task: Task, candidate: Candidate) -> None:
        """Have the builder's jail build what a candidate builds with torch's load_inline or Triton.

        Raises ForeignFailure: it does not import there, or its extension does not compile. What fails in the calls is
        left for the strict jail to tell.
        """
        if candidate.candidate_id in self._products or not needs_builder(candidate.code):
            return
        settings, began = self._zygote.settings, time.monotonic()
        scratch = self._zygote.folder / "build" / secrets.token_hex(16)
        scratch.mkdir(mode=0o700)
        special: dict[str, object] = {"scratch": str(scratch), "cpu_seconds": int(4 * settings.build_seconds)}
        try:
            with Jailed(self._zygote, "builder", began + settings.build_seconds, special) as process:
                process.compile = self.compile
                process.ask(wire.LoadCandidate(code=candidate.code), settings.build_seconds, "to import and build")
                variants = tuple(variant.constants for variant in task.variants_on(settings.device))
                with contextlib.suppress(ForeignFailure):
                    process.ask(
                        wire.Rehearse(source=task.source, variants=variants), settings.build_seconds, "to build"
                    )
            target = self._zygote.folder / "artifacts" / secrets.token_hex(32)
            self._kept_bytes += keep_products(scratch, target)
            self._products[candidate.candidate_id] = str(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            self.seconds += time.monotonic() - began

    def products(self, candidate: Candidate) -> str:
        """Folder of what was built for a candidate; empty when nothing was."""
        return self._products.get(candidate.candidate_id, "")

    def make_room(self) -> None:
        """Before a new candidate: forget everything when it is much, so that no sequence of candidates fills a disk."""
        if self._kept_bytes > KEPT_BYTES:
            for result in self._done.values():
                if result.path:
                    Path(result.path).unlink(missing_ok=True)
            self._done.clear()
            for folder in self._products.values():
                shutil.rmtree(folder, ignore_errors=True)
            self._products.clear()
            self._kept_bytes = 0

    def _compile(self, order: Compile, name: str) -> Compiled:
        settings, source = self._zygote.settings, order.source
        cuda = order.language == "cuda"
        if cuda and settings.device != "cuda":
            return Compiled(path="", error="load_cuda needs a GPU: this judge times on the CPU (judge.device)")
        if not cuda and not self._cxx:
            return Compiled(path="", error=f"this machine has no {settings.cxx}: install a C++ compiler")
        if len(source) > MAX_SOURCE:
            return Compiled(path="", error=f"the source has {len(source)} characters, at most {MAX_SOURCE} are allowed")
        scratch = self._zygote.folder / "build" / secrets.token_hex(16)
        scratch.mkdir(mode=0o700)
        try:
            given, made = ("kernel.cu", "kernel.cubin") if cuda else ("kernel.cpp", "kernel.so")
            (scratch / given).write_text(source, encoding="utf-8", errors="replace")
            (scratch / given).chmod(0o444)
            code, output = self._run(scratch, self._cuda_order(order) if cuda else self._cpp_order())
            if code is None:
                return Compiled(path="", error=f"the compiler did not finish in {settings.compile_seconds:g} s")
            built = scratch / made
            if code != 0 or not _is_plain_file(built):
                return Compiled(
                    path="", error=_nvrtc_errors(scratch, output) if cuda else summarise_errors(output, given)
                )
            if (size := built.stat().st_size) > MAX_OBJECT:
                return Compiled(path="", error=f"the shared object has {size} bytes, at most {MAX_OBJECT} are allowed")
            self._kept_bytes += size
            target = (self._zygote.folder / "artifacts" / name).with_suffix(built.suffix)
            shutil.copyfile(built, target)
            target.chmod(0o555)
            return Compiled(path=str(target), error="")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _cpp_order(self) -> dict[str, object]:
        return {"command": compile_command("kernel.cpp", "kernel.so", self._cxx, self._zygote.settings.cxx_flags)}

    def _cuda_order(self, order: Compile) -> dict[str, object]:
        from judge.cuda_device import architecture

        return {"cuda_source": True, "cuda_options": order.options, "architecture": architecture()}

    def _run(self, scratch: Path, order: dict[str, object]) -> tuple[int | None, str]:
        """Exit status (None: too late) and output of the jailed compiler."""
        settings = self._zygote.settings
        pid, sock, log = self._zygote.fork(
            {
                "role": "compiler",
                "memory_mb": settings.memory_mb,
                "cpu_seconds": int(settings.compile_seconds) + 1,
                "scratch": str(scratch),
                **order,
            }
        )
        try:
            finished = await_end(pid, settings.compile_seconds)
            # The compiler leads a group of its own: its helpers go with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            state = os.waitid(os.P_PID, pid, os.WEXITED)
            output = os.pread(log, 1 << 16, 0).decode(errors="replace")
            if not finished or state is None:
                return None, output
            return (state.si_status if state.si_code == os.CLD_EXITED else 128 + state.si_status), output
        finally:
            sock.close()
            os.close(log)


def _nvrtc_errors(scratch: Path, output: str) -> str:
    written = scratch / "errors.txt"
    if _is_plain_file(written):
        return written.read_text("utf-8", errors="replace")[:600]
    return output.strip()[-600:] or "NVRTC failed without a message"


def _is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
