"""The judge's side of its processes: the zygote that is forked from, and one jailed process."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from judge import wire
from judge.cores import Cores
from judge.errors import JudgeError, SandboxError
from judge.jail import REQUIRED, SCRATCH, holds_capabilities
from judge.memory import Array, read_tensor
from judge.settings import JudgeSettings
from judge.types import Status

_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_GPU_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia[0-9]*")
_SYSTEM = ("/usr", "/etc/ld.so.cache", "/etc/alternatives", "/proc/cpuinfo", "/sys/devices/system/cpu", *_DEVICES)
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_SEND_SECONDS = 5.0
_END_SECONDS = 20.0
_MAX_COMPILATIONS = 32


class ForeignFailure(Exception):  # noqa: N818 - a value on its way to a Verdict, not an error of ours
    """Foreign code failed: what the verdict will say."""

    def __init__(self, status: Status, message: str, *, line: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.line = line


class Zygote:
    """A process that has imported torch and forks jailed ones on request.

    Everything dies with the thread that starts the zygote (PR_SET_PDEATHSIG is bound to the thread), so a thread is
    kept for just that: the zygote lives until close() or until this process ends, however it ends.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings = settings
        self.cores = Cores(settings.threads)
        self.folder, self._folder_lock = _make_folder()
        for name, mode in (("root", 0o755), ("build", 0o711), ("artifacts", 0o711)):
            (self.folder / name).mkdir()
            (self.folder / name).chmod(mode)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._spares: list[tuple[int, socket.socket, int]] = []
        self._release = threading.Event()
        started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

        def keep() -> None:
            try:
                self._process = self._start(theirs)
            finally:
                started.set()
            self._release.wait()

        threading.Thread(target=keep, name="warpsmith-zygote", daemon=True).start()
        started.wait()
        theirs.close()
        try:
            self._await_readiness()
        except BaseException:
            self.close()
            raise

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        threads = str(self.settings.threads)
        kept = ["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"]
        if self.settings.device == "cuda":
            kept += ["LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES"]
        environment = {
            # For the builder and torch.compile, which may start compilers; the others may start nothing.
            "PATH": f"{sys.prefix}/bin:/usr/local/cuda/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": SCRATCH,
            "TMPDIR": SCRATCH,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            # Freed memory is kept, for baseline and candidate alike: a page fault for each page of each new output
            # would be half of a fast kernel's time, and most of its noise. (glibc caps the first at 32 MiB.)
            "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
            "USER": "warpsmith",  # torch.compile asks for a name, which a uid of its own has not
            "TORCHINDUCTOR_CACHE_DIR": f"{SCRATCH}/inductor",
            "TRITON_CACHE_DIR": f"{SCRATCH}/triton",
            "CUDA_CACHE_DISABLE": "1",
            **({"TRITON_LIBCUDA_PATH": found} if (found := _libcuda_folder()) else {}),
            "CUPY_CACHE_DIR": SCRATCH,
            **{name: os.environ[name] for name in kept if name in os.environ},
        }
        log = (self.folder / "zygote.log").open("wb")
        with log:
            return subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT.format(fd=theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=environment,
            )

    def _await_readiness(self) -> None:
        order = {
            "judge_pid": os.getpid(),
            "own_uid": holds_capabilities(),
            "cores": self.cores.numbers,
            "threads": self.settings.threads,
            "root": str(self.folder / "root"),
            "device": self.settings.device,
            "gpu_devices": self._gpu_devices(),
            "readable": [str(path) for path in self._readable()],
            "unlisted": [str(self.folder / "artifacts")],
            "writable": [str(self.folder / "build")],
        }
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(order).encode())
        self._control.settimeout(_START_SECONDS)
        try:
            answer = self._control.recv(16)
        except (TimeoutError, OSError):
            answer = b""
        if answer != b"r":
            log = (self.folder / "zygote.log").read_text(errors="replace").strip().splitlines()
            raise JudgeError(f"the judge's zygote did not start: {log[-1] if log else 'no answer in 60 s'}")
        self._control.settimeout(_START_SECONDS)

    def _readable(self) -> list[Path]:
        packages = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
        places = [Path(sys.prefix), Path(sys.base_prefix), *packages, *(Path(path) for path in _SYSTEM)]
        if self.settings.device == "cuda":
            places += [*map(Path, self._gpu_devices()), Path("/sys/devices/system"), Path("/sys/bus/pci")]
        tops = [Path("/", top) for top in ("bin", "lib", "lib64", "sbin")]
        places += [top for top in tops if top.is_dir() and not top.is_symlink()]
        return list(dict.fromkeys(place.resolve() if place.is_dir() else place for place in places if place.exists()))

    def _gpu_devices(self) -> list[str]:
        if self.settings.device != "cuda":
            return []
        return sorted(str(path) for pattern in _GPU_DEVICES for path in Path("/dev").glob(pattern))

    def prefork(self, count: int) -> None:
        """Have so many processes ready: on a GPU each needs a quarter of a second, side by side hardly more.

        Returns when all are, so that none of them disturbs what is timed next. Raises JudgeError.
        """
        while len(self._spares) < count:
            self._spares.append(self.fork(self._usual()))
        for _, wire_end, _ in self._spares:
            select.select([wire_end], [], [], self.settings.load_seconds)

    def take(self, role: str, special: dict[str, object] | None = None) -> tuple[int, socket.socket, int]:
        """A process that waits already, or a new one where something of it is ``special``. Raises JudgeError."""
        if self._spares and special is None:
            return self._spares.pop(0)
        return self.fork({**self._usual(), "role": role, **(special or {})})

    def _usual(self) -> dict[str, object]:
        seconds = int(self.settings.total_seconds) + 5
        return {"role": "player", "memory_mb": self.settings.memory_mb, "cpu_seconds": seconds}

    def fork(self, request: dict[str, object]) -> tuple[int, socket.socket, int]:
        """A new jailed process: its pid, our end of the wire, and a file descriptor with its output.

        Raises JudgeError when the zygote is gone.
        """
        ours, theirs = socket.socketpair()
        log = os.memfd_create("warpsmith-log", os.MFD_CLOEXEC)
        try:
            fds = array.array("i", [theirs.fileno(), log])
            message = json.dumps(request).encode()
            self._control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            answer = self._control.recv(16)
            if len(answer) != 4:
                raise OSError("the zygote hung up")
        except OSError as error:
            ours.close()
            os.close(log)
            raise JudgeError(f"the judge's zygote is gone: {error}") from None
        finally:
            theirs.close()
        return int.from_bytes(answer, "big"), ours, log

    def close(self) -> None:
        for pid, wire_end, log in self._spares:
            wire_end.close()
            os.close(log)
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED)
        self._spares.clear()
        self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._release.set()
        self.cores.release()
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._folder_lock)


def _libcuda_folder() -> str:
    """Where the driver's library lies: Triton asks ldconfig for it, which no jail can start."""
    places = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"]
    return next((place for place in places if place and (Path(place) / "libcuda.so.1").exists()), "")


def _make_folder() -> tuple[Path, int]:
    """A folder of the judge's own, and a lock that says that its judge lives; those of killed judges are removed.

    It gets its lasting name when the lock is held, so that nobody takes it for an abandoned one in between.
    """
    parent = Path(tempfile.gettempdir())
    for folder in parent.glob("warpsmith-judge-*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                with (folder / "alive").open() as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
    starting = Path(tempfile.mkdtemp(prefix="warpsmith-starting-"))
    held = os.open(starting / "alive", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    starting.chmod(0o711)
    return starting.rename(parent / starting.name.replace("starting", "judge")), held


def await_end(pid: int, seconds: float) -> bool:
    """Whether a child ends within so many seconds; it is not reaped."""
    pidfd = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(seconds * 1000))
    finally:
        os.close(pidfd)


_BOOT = "import os; os.dup2({fd}, 3); from judge.zygote import main; main()"


class Jailed:
    """One jailed process, from fork to the kill that always ends it."""

    def __init__(self, zygote: Zygote, role: str, deadline: float, special: dict[str, object] | None = None) -> None:
        settings = zygote.settings
        self.deadline = deadline
        """time.monotonic seconds when the whole verdict is due."""
        self.pid, self._sock, self._log = zygote.take(role, special)
        self._reaped = False
        self._leads_a_group = role == "builder"
        self._compilations = 0
        self.compile: Callable[[wire.Compile], wire.Compiled] | None = None
        try:
            ready = self._receive(time.monotonic() + settings.load_seconds, "to start")
        except ForeignFailure as failure:
            said = self.log_tail()
            self.close()
            raise JudgeError(f"a jailed process did not start: {failure.message}: {said}") from None
        if not isinstance(ready, wire.Ready):
            self.close()
            raise JudgeError(f"a jailed process did not start, it answered {ready}")
        self.layers, self.missing = ready.layers, ready.missing
        absent = [layer for layer in REQUIRED if layer not in self.layers]
        if settings.require_sandbox and absent:
            self.close()
            reasons = "; ".join(f"{layer}: {self.missing.get(layer, 'not raised')}" for layer in absent)
            raise SandboxError(f"judge.require_sandbox is set and this machine lacks {reasons}")

    def __enter__(self) -> Jailed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: wire.Request, seconds: float, what: str, fd: int | None = None) -> wire.Reply:
        """Send a request and wait for its reply; compile requests in between are answered.

        Raises ForeignFailure: it raised, crashed, was late, or talks nonsense.
        """
        self._send(request, fd)
        limit = time.monotonic() + seconds
        while True:
            reply = self._receive(limit, what)
            if isinstance(reply, wire.Compile) and self.compile is not None:
                began = time.monotonic()
                self._send(self._compiled(reply))
                limit += time.monotonic() - began  # compiling has a limit of its own
                continue
            if isinstance(reply, wire.Failed):
                status = Status.COMPILE_ERROR if reply.kind in ("syntax", "compile") else Status.RUNTIME_ERROR
                status = Status.INCORRECT if reply.kind == "outputs" else status
                raise ForeignFailure(status, _one_line(reply.message), line=reply.line)
            return reply

    def _compiled(self, order: wire.Compile) -> wire.Compiled:
        assert self.compile is not None
        self._compilations += 1
        if self._compilations > _MAX_COMPILATIONS:
            raise ForeignFailure(Status.REJECTED, f"more than {_MAX_COMPILATIONS} kernels to compile")
        return self.compile(order)

    def timed_call(self, seconds: float) -> tuple[float, wire.Called]:
        """One call of a stopped process: (seconds by the judge's clock, reply). It is stopped again on return.

        A kernel that is built when it is first needed is compiled while the clock runs and the process stands still.
        """
        call = wire.Call(secrets.randbits(62))
        began, ended, reply = self._timed(lambda: wire.send_call(self._sock, call), seconds)
        while isinstance(reply, wire.Compile) and self.compile is not None:
            compiled = self._compiled(reply)
            _, ended, reply = self._timed(partial(wire.send, self._sock, compiled), seconds)
        if not isinstance(reply, wire.Called) or reply.nonce != call.nonce:
            raise ForeignFailure(Status.REJECTED, "it answered a call with something else than that call's result")
        return ended - began, reply

    def timed_batch(self, batch: wire.CallBatch, seconds: float) -> tuple[float, wire.CalledBatch]:
        """A batch of calls on a GPU: (time.perf_counter at its beginning, reply); the clock runs on."""
        began, _, reply = self._timed(lambda: wire.send(self._sock, batch), seconds)
        if not isinstance(reply, wire.CalledBatch) or reply.nonce != batch.nonce:
            raise ForeignFailure(Status.REJECTED, "it answered a batch with something else than that batch's result")
        return began, reply

    def _timed(self, send: Callable[[], None], seconds: float) -> tuple[float, float, wire.Reply]:
        """The clock starts before the process may run and stops when its answer is here; what the answer says, and
        whether it has this call's nonce, is looked at when the process stands still."""
        self._sock.settimeout(_SEND_SECONDS)
        try:
            send()
        except wire.WireError:
            raise self._failure("stopped listening") from None
        limit = min(time.monotonic() + seconds, self.deadline)
        self.check_still()
        with self._faults_told("for forward"):
            began = time.perf_counter()
            os.kill(self.pid, signal.SIGCONT)
            answer = wire.receive_bytes(self._sock, limit)
            ended = time.perf_counter()
            self.stop()
            reply = wire.decode_reply(answer)
        if isinstance(reply, wire.Failed):
            status = Status.INCORRECT if reply.kind == "outputs" else Status.RUNTIME_ERROR
            raise ForeignFailure(status, _one_line(reply.message), line=reply.line)
        return began, ended, reply

    def stop(self) -> None:
        """SIGSTOP, confirmed: from here on nothing in the process moves.

        Raises ForeignFailure: it ended, or does not stop (SIGCONT takes a SIGSTOP back that is on its way).
        """
        os.kill(self.pid, signal.SIGSTOP)
        limit = time.monotonic() + _STOP_SECONDS
        while (state := os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG)) is None:
            if time.monotonic() > limit:
                raise ForeignFailure(Status.REJECTED, "the process would not stand still")
        if state.si_code != os.CLD_STOPPED:
            self._reaped = True
            raise ForeignFailure(Status.RUNTIME_ERROR, _ending(state.si_code, state.si_status))

    def check_still(self) -> None:
        """That a stopped process has not run since: each change of state leaves a note. Raises ForeignFailure."""
        changes = os.WSTOPPED | os.WCONTINUED | os.WEXITED
        state = os.waitid(os.P_PID, self.pid, changes | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return
        if state.si_code not in (os.CLD_STOPPED, os.CLD_CONTINUED):
            ending = _ending(state.si_code, state.si_status)
            raise ForeignFailure(Status.RUNTIME_ERROR, f"while it stood still {ending}")
        how = "was stopped once more" if state.si_code == os.CLD_STOPPED else "went on"
        raise ForeignFailure(Status.REJECTED, f"the process moved while it should stand still: it {how}")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def read(self, spec: wire.TensorSpec) -> Array:
        """Copy a tensor out of the (stopped) process. Raises ForeignFailure when it does not exist there."""
        try:
            return read_tensor(self.pid, spec)
        except OSError as error:
            raise ForeignFailure(
                Status.RUNTIME_ERROR, f"an output does not lie where it was said to: {error.strerror}"
            ) from None

    def log_tail(self) -> str:
        """The last line of what the process printed."""
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, 2000, max(size - 2000, 0)).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return _one_line(lines[-1])[:200] if lines else ""

    def _send(self, message: wire.Request, fd: int | None = None) -> None:
        self._sock.settimeout(_SEND_SECONDS)
        try:
            wire.send(self._sock, message, fd)
        except wire.WireError:
            raise self._failure("stopped listening") from None

    def _receive(self, limit: float, what: str) -> wire.Reply:
        with self._faults_told(what):
            return wire.receive_reply(self._sock, min(limit, self.deadline))

    @contextlib.contextmanager
    def _faults_told(self, what: str) -> Iterator[None]:
        """What goes wrong on the wire as a ForeignFailure."""
        try:
            yield
        except TimeoutError:
            raise ForeignFailure(Status.TIMEOUT, f"took too long {what}") from None
        except wire.HangupError:
            raise self._failure("hung up") from None
        except wire.WireError as error:
            raise ForeignFailure(Status.REJECTED, f"it wrote to the judge's wire: {error}") from None

    def _failure(self, what: str) -> ForeignFailure:
        """Why it no longer answers: how it ended, when it has."""
        if not await_end(self.pid, 1):
            return ForeignFailure(Status.RUNTIME_ERROR, f"the process {what}")
        state = os.waitid(os.P_PID, self.pid, os.WEXITED)
        self._reaped = True
        assert state is not None
        return ForeignFailure(Status.RUNTIME_ERROR, _ending(state.si_code, state.si_status))

    def close(self) -> None:
        """Kill and reap. Raises JudgeError when the kernel does not let it end."""
        if self._log < 0:
            return
        self._sock.close()
        os.close(self._log)
        self._log = -1
        if self._reaped:
            return
        self._reaped = True
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if self._leads_a_group:
                with contextlib.suppress(PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)
            if not await_end(self.pid, _END_SECONDS):
                raise JudgeError(f"a killed process has not ended for {_END_SECONDS:g} s")
            os.waitid(os.P_PID, self.pid, os.WEXITED)


def _one_line(text: str) -> str:
    """What foreign code said, fit for a report: short, one line, nothing that a terminal obeys."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[:600]


def _ending(code: int, status: int) -> str:
    if code == os.CLD_EXITED:
        return f"the process exited with {status} instead of answering"
    name = signal.Signals(status).name if status in set(signal.Signals) else f"signal {status}"
    hint = {
        "SIGSEGV": " (a wild pointer, or a write to an input: inputs are read-only)",
        "SIGXCPU": " (out of CPU time)",
        "SIGILL": " (an instruction that this CPU lacks)",
        "SIGFPE": " (an integer division by zero)",
        "SIGABRT": " (abort: an uncaught C++ exception or a damaged heap)",
    }.get(name, "")
    return f"the process was ended by {name}{hint}"
