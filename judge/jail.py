"""The walls around foreign code, raised from inside the process that will run it. Linux only; ctypes only.

What is covered: files (an empty root or Landlock, or both), network (namespace, Landlock, no sockets), other processes
(own uid, no signals, no ptrace, no foreign memory), new processes (fork and exec refused when strict), privileges,
memory, CPU time, file sizes, open files.
What is not covered: bugs of the kernel itself, side channels, memory bandwidth and caches shared with neighbours.

Not every machine offers every layer (namespaces need root or unprivileged user namespaces; Landlock needs Linux 5.13).
Each function says what it raised and what it could not; `warpsmith doctor` shows both, verdicts name the former.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)

LAYERS = ("mountns", "netns", "ipcns", "utsns", "uid", "capabilities", "no_new_privs", "rlimits", "landlock", "seccomp")
"""Every layer there is, in the order in which they go up."""

REQUIRED = tuple(layer for layer in LAYERS if layer != "uid")
"""What judge.require_sandbox insists on; a uid of its own is root's to give."""

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x40000000,
)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 4, 24, 38, 22
_SIGKILL = 9

SCRATCH = "/jail"
"""Where a jailed process may write; not /tmp, beneath which its libraries may lie."""


class JailError(Exception):
    """A wall that had been promised could not be raised."""


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    return _check(int(libc.syscall(ctypes.c_long(number), *arguments)), f"syscall {number}")


def prctl(option: int, value: int = 0) -> None:
    _check(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def die_with_parent(parent: int, wire: int | None = None) -> None:
    """SIGKILL when the thread that is our parent ends; checked against it having ended already.

    In a pid namespace of its own a process cannot see its parent: its end of the ``wire`` tells whether that lives.
    """
    prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() not in (parent, 0):
        os._exit(1)
    if wire is not None:
        poller = select.poll()
        poller.register(wire, 0)
        if poller.poll(0):
            os._exit(1)


def holds_capabilities() -> bool:
    """Whether this process may read the memory of other uids' processes and signal them (CAP_SYS_PTRACE, CAP_KILL).

    Root of a container mostly may not: its jailed processes then keep its uid, without its capabilities.
    """
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    needed = 1 << 19 | 1 << 5
    return int(line.split()[1], 16) & needed == needed


def tasks_of_this_uid() -> int:
    """Threads that RLIMIT_NPROC counts already, as far as /proc shows them (nothing in a namespace of our own)."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += len(list((process / "task").iterdir()))
    return count


# --- namespaces: raised once, in the zygote ---


def enter_namespaces() -> tuple[list[str], dict[str, str]]:
    """New mount, network, IPC and UTS namespaces; a user namespace first when not root. Returns (raised, missing)."""
    flags = {"mountns": _CLONE_NEWNS, "netns": _CLONE_NEWNET, "ipcns": _CLONE_NEWIPC, "utsns": _CLONE_NEWUTS}
    uid, gid = os.getuid(), os.getgid()
    together = sum(flags.values()) | (0 if uid == 0 else _CLONE_NEWUSER)
    try:
        _check(libc.unshare(ctypes.c_int(_as_int(together))), "unshare")
    except OSError as error:
        remedy = "run as root, or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
        return [], dict.fromkeys(flags, f"{error.strerror}; {remedy}")
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return list(flags), {}


def _as_int(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def pivot_into(root: Path, readable: Sequence[Path], writable: Sequence[Path], *, own_processes: bool = False) -> None:
    """Replace the root by an empty one that shows ``readable`` (read-only) and ``writable`` at their own paths.

    Needs a mount namespace of its own. Symbolic links at the top (/lib -> usr/lib) are made again.
    """
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", str(root), "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=16m")
    (root / "tmp").mkdir()
    (root / SCRATCH.lstrip("/")).mkdir()
    for top in ("bin", "lib", "lib64", "sbin"):
        source = Path("/", top)
        if source.is_symlink():
            (root / top).symlink_to(source.readlink())
    if own_processes:
        mount_own_processes(root)
    for path in sorted({*readable, *writable}):
        if not path.exists() or (own_processes and path.is_relative_to("/proc")):
            continue
        target = root / path.relative_to("/")
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        _mount(str(path), str(target), None, _MS_BIND | _MS_REC)
        flags = _MS_BIND | _MS_REMOUNT | _MS_NOSUID | (0 if path in writable else _MS_RDONLY)
        if not str(path).startswith(("/dev/", "/sys", "/proc")):
            flags |= _MS_NODEV
        try:
            _mount(None, str(target), None, flags)
        except OSError:
            # In a user namespace the flags of the original mount are locked: a bind of it keeps them.
            if path not in writable and os.access(target, os.W_OK):
                raise
    old = root / ".old"
    old.mkdir()
    _check(libc.syscall(155, str(root).encode(), str(old).encode()), "pivot_root")
    os.chdir("/")
    _check(libc.umount2(b"/.old", 2), "umount of the old root")
    Path("/.old").rmdir()
    _mount(None, "/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def mount_own_processes(root: Path) -> None:
    """A /proc in which each process sees its own entry only (and its uid's): the CUDA driver reads there, and names its
    threads. Raises OSError.
    """
    (root / "proc").mkdir(exist_ok=True)
    _mount("proc", str(root / "proc"), "proc", _MS_NOSUID | _MS_NODEV, "hidepid=2")


def remount_own_processes() -> None:
    """mount_own_processes for a process in a pid namespace of its own. Raises OSError."""
    _check(libc.unshare(ctypes.c_int(_CLONE_NEWNS)), "unshare")
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV, "hidepid=2")


def mount_private_scratch(size_mb: int) -> None:
    """An empty SCRATCH that this process alone sees, gone when it ends. Raises OSError."""
    _check(libc.unshare(ctypes.c_int(_CLONE_NEWNS)), "unshare")
    _mount("tmpfs", SCRATCH, "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777,size={size_mb}m")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(
        libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount {source or ''} on {target}",
    )


# --- the walls of one process ---


def drop_privileges(uid: int | None) -> tuple[list[str], dict[str, str]]:
    """Every capability and, where one is given, the uid. ``no_new_privs`` too: seccomp needs it or a capability."""
    raised, missing = [], {}
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)  # beyond the last one: EINVAL
    if uid is not None:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            raised.append("uid")
        except OSError as error:
            missing["uid"] = f"{error.strerror}: this user namespace maps too few uids"
    header = struct.pack("Ii", 0x20080522, 0)
    try:
        _check(libc.capset(header, bytes(24)), "capset")
        raised.append("capabilities")
    except OSError as error:
        missing["capabilities"] = str(error)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    raised.append("no_new_privs")
    return raised, missing


def limit_resources(
    *,
    memory_bytes: int,
    processes: int,
    file_bytes: int,
    cpu_seconds: int,
    files: int = 256,
    whole_space: bool = True,
) -> None:
    """rlimits; ``memory_bytes`` is the whole address space, or only what of it is private and writable.

    RLIMIT_NPROC does not bind uid 0, the own uid makes it.
    """
    for kind, value in (
        (resource.RLIMIT_AS if whole_space else resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bounded, bounded))


_READ = 1 << 2 | 1 << 3
_EXECUTE = 1 << 0
_READ_FILE = 1 << 2
_WRITE_FILE = 1 << 1
_TRUNCATE = 1 << 14
_DEVICE_CONTROL = 1 << 15
_WRITE = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 13 | 1 << 14


def landlock_abi() -> int:
    """Version of Landlock that the kernel offers; 0 for none."""
    try:
        return syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


def restrict_files(
    *,
    readable: Sequence[str],
    unlisted: Sequence[str],
    writable: Sequence[str],
    changeable: Sequence[str] = (),
    devices: Sequence[str] = (),
) -> None:
    """Landlock: files beneath ``readable`` may be read and mapped for execution, beneath ``unlisted`` likewise by a
    known name only, beneath ``writable`` written, beneath ``changeable`` written where they exist, ``devices`` used; no
    TCP, no abstract sockets or signals across the border.

    Raises OSError where the kernel has no Landlock.
    """
    abi = landlock_abi()
    if abi == 0:
        raise OSError(38, "this kernel has no Landlock (Linux 5.13 and CONFIG_SECURITY_LANDLOCK)")
    files = (1 << (13 + (abi >= 2) + (abi >= 3))) - 1 | (1 << 15 if abi >= 5 else 0)
    attributes = struct.pack("QQQ", files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    attributes = attributes[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = syscall(444, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    grants = (
        [(path, _READ | _EXECUTE) for path in readable]
        + [(path, _READ_FILE | _EXECUTE) for path in unlisted]
        + [(path, _READ | _WRITE) for path in writable]
        + [(path, _READ | _WRITE_FILE | _TRUNCATE) for path in changeable]
        + [(path, _READ_FILE | _WRITE_FILE | _DEVICE_CONTROL) for path in devices]
    )
    for path, access in grants:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # what is not there needs no grant
        if not Path(path).is_dir():
            access &= ~(1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 13)
        rule = struct.pack("=Qi", access & files, descriptor)
        syscall(445, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
        os.close(descriptor)
    syscall(446, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def attempt(name: str, raise_wall: Callable[[], None], raised: list[str], missing: dict[str, str]) -> None:
    """Raise one wall and note whether it stands."""
    try:
        raise_wall()
        raised.append(name)
    except OSError as error:
        missing[name] = error.strerror or str(error)
