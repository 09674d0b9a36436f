"""The process that jailed processes are forked from: it has imported torch, has run nothing, and knows nothing.

A fork costs some ten milliseconds, importing torch afresh one and a half seconds. The zygote stands in namespaces of
its own and an empty read-only root. Each child is made with CLONE_PARENT, so it is the judge's own child: the judge
waits for it and kills it, no zygote between.

    python -I -c "from judge.zygote import main; main()"    (started by judge.process.Zygote only)
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import tempfile
import traceback
from pathlib import Path
from typing import Any

from judge import jail, runner, seccomp

_CLONE_PARENT, _CLONE_NEWPID = 0x8000, 0x20000000
_MEGABYTE = 1 << 20
_SCRATCH, _LARGE_SCRATCH = 16, 512
"""MiB; the large one for torch.compile, whose baselines start compilers."""
_OTHERS_GROWTH = 256
"""Where the uid is shared with everything else its user runs: threads that those may start meanwhile."""


def main() -> None:
    """Read the order from standard input's socket (fd 3), get ready, then fork on request until it closes."""
    control = socket.socket(fileno=3)
    order = json.loads(control.recv(1 << 16))
    judge_pid = order["judge_pid"]
    jail.die_with_parent(judge_pid)
    os.sched_setaffinity(0, order["cores"])
    with contextlib.suppress(OSError):
        # Root only. A process that is woken for a timed call waits a millisecond for a busy neighbour otherwise.
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    _import_everything(order["threads"], order["device"])
    address_space, written = _memory_in_use()
    layers: list[str] = []
    missing: dict[str, str] = {}
    root = Path(order["root"])
    try:
        layers, missing = jail.enter_namespaces()
        if "mountns" in layers:
            readable, writable = [Path(p) for p in order["readable"]], [Path(p) for p in order["writable"]]
            unlisted = [Path(p) for p in order["unlisted"]]
            jail.pivot_into(root, [*readable, *unlisted], writable, own_processes=order["device"] == "cuda")
    except OSError as error:
        # Half a new root is no wall: say so and go on with the others.
        missing["mountns"] = str(error)
        layers = [layer for layer in layers if layer != "mountns"]
    if hindrance := _why_no_own_uid(order, layers):
        missing["uid"] = hindrance
    gc.collect()
    gc.freeze()
    control.sendall(b"r")
    while True:
        request, fds = _receive(control)
        if request is None:
            return
        pid = _fork(own_pids=request["role"] in ("compiler", "builder"))
        if pid == 0:
            control.close()
            try:
                _become(request, fds, order, (list(layers), dict(missing)), (address_space, written))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        for fd in fds:
            os.close(fd)
        control.sendall(pid.to_bytes(4, "big"))


def _import_everything(threads: int, device: str) -> None:
    import random  # noqa: F401 - foreign code finds these imported

    import judge.builder_runner

    if device == "cuda":
        import judge.cuda_runner  # noqa: F401 - imports CuPy; nothing here may touch CUDA, or no child could

    import numpy  # noqa: F401
    import torch
    import torch.nn.functional

    import warpsmith  # noqa: F401

    torch.set_num_threads(threads)
    assert runner and torch.nn.functional


def _memory_in_use() -> tuple[int, int]:
    """Bytes that this process maps already (torch alone maps gigabytes), and of them the private writable ones."""
    pages = Path("/proc/self/statm").read_text().split()
    return int(pages[0]) * resource.getpagesize(), int(pages[5]) * resource.getpagesize()


def _why_no_own_uid(order: dict[str, Any], layers: list[str]) -> str:
    """Why jailed processes keep the judge's uid; empty when they need not."""
    if os.getuid() != 0 or not order["own_uid"]:
        return "needs root with CAP_SYS_PTRACE and CAP_KILL: the jail keeps the judge's uid"
    if "mountns" not in layers:
        for place in map(Path, [*order["readable"], *order["unlisted"]]):
            for folder in (place, *place.parents):
                if folder.is_dir() and not folder.stat().st_mode & 0o001:
                    return f"other users may not enter {folder}, where Python lies: the jail keeps the judge's uid"
    return ""


def _receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    data, ancillary, _, _ = control.recvmsg(4096, socket.CMSG_SPACE(4 * 4))
    fds = array.array("i")
    for _, _, payload in ancillary:
        fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return (json.loads(data) if data else None), list(fds)


def _fork(*, own_pids: bool) -> int:
    """clone(CLONE_PARENT | SIGCHLD): our twin, child of our parent.

    With ``own_pids``, where allowed, the first process of a pid namespace: all that it starts dies with it. (A death
    signal is not inherited: without this a compiler's helpers would outlive a killed judge, up to their CPU limit.)
    """
    before, in_child, in_parent = (
        ctypes.pythonapi.PyOS_BeforeFork,
        ctypes.pythonapi.PyOS_AfterFork_Child,
        ctypes.pythonapi.PyOS_AfterFork_Parent,
    )
    before()
    flags = _CLONE_PARENT | signal.SIGCHLD
    pid = -1
    if own_pids:
        pid = jail.libc.syscall(56, ctypes.c_ulong(flags | _CLONE_NEWPID), 0, 0, 0, 0)
    if pid < 0:
        pid = jail.libc.syscall(56, ctypes.c_ulong(flags), 0, 0, 0, 0)
    (in_child if pid == 0 else in_parent)()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return int(pid)


def _become(
    request: dict[str, Any],
    fds: list[int],
    order: dict[str, Any],
    walls: tuple[list[str], dict[str, str]],
    in_use: tuple[int, int],
) -> None:
    """In the child: keep the wire and the log only, raise the remaining walls, then serve the judge."""
    os.dup2(fds[1], 1)
    os.dup2(fds[1], 2)
    wire = os.dup2(fds[0], 10)
    low, high = 3, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(low, wire)
    os.closerange(wire + 1, min(high, 4096))
    null = os.open("/dev/null", os.O_RDONLY)
    if null != 0:
        os.dup2(null, 0)
    raised, missing = walls
    compiling = request["role"] == "compiler"
    building = request["role"] == "builder"
    starts_programs = compiling or building or request["role"] == "compiled"
    scratch = request.get("scratch", jail.SCRATCH if "mountns" in raised else "/")
    uid = None
    if "uid" not in missing:
        # The first process of a pid namespace has the pid 1, as all others of its kind.
        uid = 1_000_000 + (os.getpid() if os.getpid() != 1 else 1_000_000 + int.from_bytes(os.urandom(3), "big"))
    if compiling or building:
        os.set_inheritable(wire, False)
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
        if uid is not None:
            with contextlib.suppress(OSError):  # a user namespace without that uid: it cannot be taken on either
                os.chown(scratch, uid, uid)
    elif "mountns" in raised:
        # Its own: what one process left in a shared one could answer for the next, or leave it no room.
        jail.mount_private_scratch(_LARGE_SCRATCH if starts_programs else _SCRATCH)
    if building and order["device"] == "cuda" and "mountns" in raised and os.getpid() == 1:
        jail.remount_own_processes()  # the zygote's is of another pid namespace
    more, lacking = jail.drop_privileges(uid)
    raised += more
    missing |= lacking
    if uid is None:
        jail.prctl(4, 1)  # same uid as the judge, who must be able to read our memory
    jail.die_with_parent(order["judge_pid"], wire)
    others = jail.tasks_of_this_uid() + _OTHERS_GROWTH if uid is None and "mountns" not in walls[0] else 0
    on_gpu = order["device"] == "cuda" and not compiling
    jail.limit_resources(
        # The driver reserves address space by the terabyte: there only what is written to counts.
        memory_bytes=in_use[on_gpu] + request["memory_mb"] * _MEGABYTE,
        whole_space=not on_gpu,
        processes=others + (64 if compiling or on_gpu else 16 + 2 * order["threads"]),
        file_bytes=64 * _MEGABYTE if starts_programs else _MEGABYTE,
        cpu_seconds=request["cpu_seconds"],
    )
    raised.append("rlimits")
    readable = [*order["readable"], "/proc/cpuinfo", "/sys/devices/system/cpu"]
    writable = ["/dev/null"] if scratch == "/" else [scratch, "/dev/null"]
    jail.attempt(
        "landlock",
        lambda: jail.restrict_files(
            readable=readable,
            unlisted=order["unlisted"],
            writable=writable,
            changeable=["/proc"] * on_gpu,
            devices=order["gpu_devices"] * on_gpu,
        ),
        raised,
        missing,
    )
    os.chdir(scratch)
    tempfile.tempdir = scratch  # asked for and remembered by an import, before there was this one

    jail.attempt("seccomp", lambda: seccomp.install(strict=not starts_programs, gpu=on_gpu), raised, missing)
    if "cuda_source" in request:
        _compile_cuda(request)
    if compiling:
        command = request["command"]
        os.execve(command[0], command, {"PATH": "/usr/bin:/bin", "LANG": "C", "TMPDIR": scratch})
    kind = _builder_class(order["device"]) if building else _runner_class(order["device"])
    runner.serve(kind, socket.socket(fileno=wire), tuple(raised), missing)


def _runner_class(device: str) -> type[runner.Runner]:
    if device == "cuda":
        from judge.cuda_runner import CudaRunner

        return CudaRunner
    return runner.Runner


def _builder_class(device: str) -> type[runner.Runner]:
    from judge import builder_runner

    return builder_runner.CudaBuilderRunner if device == "cuda" else builder_runner.BuilderRunner


def _compile_cuda(request: dict[str, Any]) -> None:
    """NVRTC is a library: no program is started. Leaves kernel.cubin or errors.txt in the scratch folder."""
    from judge.load_cuda import compile_to_cubin

    source = Path("kernel.cu").read_text(encoding="utf-8")
    code, errors = compile_to_cubin(source, request["cuda_options"], request["architecture"])
    if code:
        Path("kernel.cubin").write_bytes(code)
    else:
        Path("errors.txt").write_text(errors, encoding="utf-8")
    os._exit(0 if code else 1)
