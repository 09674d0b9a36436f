"""The system calls that jailed code may not make (x86-64), as a BPF program.

A deny list: torch, OpenMP and libc need too many calls for a short allow list, and each entry here has a reason. The
architecture is checked and the x32 numbers refused, so that no call goes by another name.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

from judge.jail import syscall

_ALWAYS = {
    # other processes: look into, signal, inherit from
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_open": 434,
    "pidfd_getfd": 438, "pidfd_send_signal": 424, "process_madvise": 440, "process_mrelease": 448,
    "tkill": 200, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "migrate_pages": 256, "move_pages": 279,
    # network and channels that others can see
    "socket": 41, "connect": 42, "bind": 49, "listen": 50, "accept": 43, "accept4": 288, "socketpair": 53,
    "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220,
    "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242,
    "mq_timedreceive": 243, "mq_notify": 244, "mq_getsetattr": 245, "add_key": 248, "request_key": 249, "keyctl": 250,
    "memfd_create": 319, "memfd_secret": 447,
    # kernel surfaces that have been ways out
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "userfaultfd": 323, "bpf": 321,
    "perf_event_open": 298, "fanotify_init": 300, "fanotify_mark": 301, "io_setup": 206, "io_submit": 209,
    "vmsplice": 278, "modify_ldt": 154, "remap_file_pages": 216, "lookup_dcookie": 212, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "syslog": 103, "kexec_load": 246, "kexec_file_load": 320, "init_module": 175,
    "finit_module": 313, "delete_module": 176, "iopl": 172, "ioperm": 173, "uselib": 134, "personality": 135,
    # walls and mounts
    "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
    "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "quotactl_fd": 443, "mknod": 133, "mknodat": 259,
    # signals of its own choice: one that is SIGCONT lets a process run that the judge has stopped
    "timer_create": 222,
    # clocks, hosts, power
    "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "sethostname": 170,
    "setdomainname": 171, "reboot": 169, "vhangup": 153,
    # identity
    "setuid": 105, "setgid": 106, "setreuid": 113, "setregid": 114, "setgroups": 116, "setresuid": 117,
    "setresgid": 119, "setfsuid": 122, "setfsgid": 123, "capset": 126,
    # scheduling: where and how urgently it runs is the judge's choice
    "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314,
    "setpriority": 141, "ioprio_set": 251, "set_mempolicy": 238, "mbind": 237, "mlockall": 151,
}  # fmt: skip
_NO_NEW_PROCESSES = {"fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "setsid": 112, "setpgid": 109}
_KILL, _TGKILL, _CLONE, _CLONE3, _PRCTL = 62, 234, 56, 435, 157
_FCNTL, _F_SETSIG = 72, 10
_FIRST_JOB_SIGNAL, _AFTER_JOB_SIGNALS = 18, 23
"""SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU: whether a process stands or runs is the judge's choice."""
_CLONE_THREAD = 0x10000
_PRCTL_DENIED = (1, 4, 35, 36)
"""PDEATHSIG, DUMPABLE, MM, CHILD_SUBREAPER."""

_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOENT, _ENOSYS = 1, 2, 38
_SOCKET, _CONNECT, _AF_UNIX, _SEQPACKET_CLOEXEC = 41, 42, 1, 0x80005
_ARCH_X86_64 = 0xC000003E
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT0, _ARGUMENT1, _ARGUMENT2 = 0, 4, 16, 24, 32


def program(*, own_pid: int, strict: bool, gpu: bool = False) -> bytes:
    """The filter as an array of struct sock_filter. ``strict`` also refuses new processes and programs.

    ``gpu``: the CUDA driver looks for a server of NVIDIA's (MPS) by a Unix socket, and listens on an abstract one of
    its own; it gives up when it may not. It may, but finds nobody, and nobody finds it: no jailed process can connect.
    """

    def op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, k)

    refuse, absent, allow = op(_RETURN, _ERRNO | _EPERM), op(_RETURN, _ERRNO | _ENOSYS), op(_RETURN, _ALLOW)
    code = [
        op(_LOAD, _ARCH),
        op(_JEQ, _ARCH_X86_64, 1, 0),
        op(_RETURN, _KILL_PROCESS),
        op(_LOAD, _NUMBER),
        op(_JGE, 0x40000000, 0, 1),
        op(_RETURN, _KILL_PROCESS),
    ]
    denied = dict(_ALWAYS)
    if strict:
        denied |= _NO_NEW_PROCESSES
    if gpu:
        for name in ("socket", "connect", "bind", "listen"):
            del denied[name]
        code += [op(_JEQ, _SOCKET, 0, 6), op(_LOAD, _ARGUMENT0), op(_JEQ, _AF_UNIX, 0, 2), op(_LOAD, _ARGUMENT1)]
        code += [op(_JEQ, _SEQPACKET_CLOEXEC, 1, 0), refuse, allow]
        code += [op(_JEQ, _CONNECT, 0, 1), op(_RETURN, _ERRNO | _ENOENT)]
    for number in denied.values():
        code += [op(_JEQ, number, 0, 1), refuse]
    # abort() signals its own process; nobody else may be signalled, and nobody stopped or continued.
    code += [op(_JEQ, _TGKILL, 0, 7), op(_LOAD, _ARGUMENT0), op(_JEQ, own_pid, 0, 4), op(_LOAD, _ARGUMENT2)]
    code += [op(_JGE, _FIRST_JOB_SIGNAL, 0, 1), op(_JGE, _AFTER_JOB_SIGNALS, 0, 1), allow, refuse]
    code += [op(_JEQ, _FCNTL, 0, 4), op(_LOAD, _ARGUMENT1), op(_JEQ, _F_SETSIG, 0, 1), refuse, allow]
    if strict:
        code += [op(_JEQ, _KILL, 0, 1), refuse]
        code += [op(_JEQ, _CLONE, 0, 4), op(_LOAD, _ARGUMENT0), op(_JSET, _CLONE_THREAD, 0, 1), allow, refuse]
        # clone3 hides its flags behind a pointer: libc falls back to clone when it is absent.
        code += [op(_JEQ, _CLONE3, 0, 1), absent]
        code += [op(_JEQ, _PRCTL, 0, 2 * len(_PRCTL_DENIED) + 2), op(_LOAD, _ARGUMENT0)]
        for option in _PRCTL_DENIED:
            code += [op(_JEQ, option, 0, 1), refuse]
        code += [allow]
    return b"".join([*code, allow])


def install(*, strict: bool, gpu: bool = False) -> None:
    """Put the filter over this process and all its threads. Needs no_new_privs. Raises OSError."""
    if platform.machine() != "x86_64":
        raise OSError(38, "the filter is written for x86-64 only")
    code = program(own_pid=os.getpid(), strict=strict, gpu=gpu)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    syscall(317, ctypes.c_uint(1), ctypes.c_uint(1), header)  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
