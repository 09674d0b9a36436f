"""The walls where a machine offers less, and what is left when a judge is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from judge import jail
from judge.api import Judge
from judge.errors import SandboxError
from judge.jail import LAYERS
from judge.settings import JudgeSettings
from judge.types import Candidate
from tasks.loader import load_task

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "fused_gelu"
START = f"""
import ctypes, json, os, struct, sys, threading, time
from pathlib import Path
from judge.api import Judge
from judge.settings import JudgeSettings
from judge.types import Candidate
from tasks.loader import load_task
libc = ctypes.CDLL(None, use_errno=True)
task = load_task({str(EXAMPLE / "task.py")!r})
quick = JudgeSettings(pairs=3, calls=4, warmup_calls=1)
"""
NO_NAMESPACES = """
def op(code, k, yes=0, no=0): return struct.pack("HBBI", code, yes, no, k)
code = op(0x20, 0) + op(0x15, 272, 0, 1) + op(6, 0x50001) + op(6, 0x7FFF0000)  # unshare: EPERM
buffer = ctypes.create_string_buffer(code, len(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.syscall(317, 1, 0, struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))) == 0
"""
CONTAINER_ROOT = """
docker = sum(1 << n for n in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))  # the capabilities that Docker leaves
for n in range(41):
    if not docker >> n & 1: libc.prctl(24, n, 0, 0, 0)
low, high = docker & 0xFFFFFFFF, docker >> 32
assert libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", low, low, 0, high, high, 0)) == 0
"""
BUSY_USER = "[threading.Thread(target=time.sleep, args=(60,), daemon=True).start() for _ in range(120)]\n"
VERDICTS = f"""
said = {{}}
with Judge(quick) as judge:
    for name in ("fast", "wrong", "cheat"):
        said[name] = str(judge.judge(task, Candidate(code=Path({str(EXAMPLE)!r}, name + ".py").read_text())).status)
    for code, name in (("open('/etc/hostname')", "reads"), ("import os; os.fork()", "forks"),
                       ("import socket; socket.socket()", "phones")):
        said[name] = judge.judge(task, Candidate(code=code)).message
    said["layers"] = judge.layers()
print(json.dumps(said), flush=True)
os._exit(0)
"""


def run(script: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert isinstance(said, dict)
    return said


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="drops root's capabilities")


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(NO_NAMESPACES, id="no namespaces"),
        pytest.param(CONTAINER_ROOT, id="root of a container", marks=needs_root),
        pytest.param(NO_NAMESPACES + BUSY_USER, id="no namespaces, a busy user"),
    ],
)
def test_fewer_walls_still_hold_and_verdicts_are_the_same(limits: str) -> None:
    said = run(START + limits + VERDICTS)
    assert said["fast"] in ("win", "correct")
    assert said["wrong"] == said["cheat"] == "incorrect"
    assert said["reads"] == "candidate line 1: PermissionError: [Errno 13] Permission denied: '/etc/hostname'"
    assert said["forks"] == "candidate line 1: PermissionError: [Errno 1] Operation not permitted"
    assert said["phones"] == "candidate line 1: PermissionError: [Errno 1] Operation not permitted"
    layers = said["layers"]
    assert isinstance(layers, list)
    assert set(layers) - {"uid"} == {"capabilities", "no_new_privs", "rlimits", "landlock", "seccomp"} <= set(LAYERS)


def test_require_sandbox_refuses_before_foreign_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that ends the process on import: had it run, this would be a verdict about that."""
    monkeypatch.setattr("judge.process.REQUIRED", (*jail.REQUIRED, "moat"))
    with Judge(JudgeSettings(require_sandbox=True)) as judge, pytest.raises(SandboxError, match="moat: not raised"):
        judge.judge(load_task(EXAMPLE / "task.py"), Candidate(code="import os; os._exit(3)"))


def test_a_judge_killed_while_compiling_leaves_no_compiler_and_the_next_one_removes_its_folder(tmp_path: Path) -> None:
    """A compiler's helpers do not inherit its death signal; this source keeps one busy for its whole CPU limit."""
    source = (
        "template<int N, int M> struct G { static constexpr long v = G<N-1,2*M>::v + G<N-1,2*M+1>::v; };"
        "template<int M> struct G<0,M> { static constexpr long v = M; };"
        'extern "C" void f(long* x) { x[0] = G<24,1>::v; }'
    )
    code = f"import warpsmith\nwarpsmith.load_cpp({source!r})"
    script = START + f"with Judge() as judge:\n    judge.judge(task, Candidate(code={code!r}))"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=environment)
    ours: list[psutil.Process] = []
    end = time.monotonic() + 60
    while not any(child.name() == "cc1plus" for child in ours):
        assert time.monotonic() < end, [child.name() for child in ours]
        assert process.poll() is None
        time.sleep(0.05)
        ours = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert len(list(tmp_path.glob("warpsmith-judge-*"))) == 1
    assert not psutil.wait_procs(ours, timeout=5)[1]
    subprocess.run(
        [sys.executable, "-c", START + "Judge(quick).close()"], cwd=ROOT, env=environment, timeout=60, check=True
    )
    assert not list(tmp_path.glob("warpsmith-judge-*"))
    assert not list(tmp_path.glob("warpsmith-starting-*"))


GPU_FILTER = """
import os, socket
from judge import jail, seccomp
jail.prctl(38, 1)
seccomp.install(strict=True, gpu=True)
def outcome(*arguments):
    try:
        socket.socket(*arguments).close()
        return "made"
    except PermissionError:
        return "refused"
print(outcome(socket.AF_UNIX, socket.SOCK_SEQPACKET), outcome(socket.AF_UNIX, socket.SOCK_STREAM),
      outcome(socket.AF_INET, socket.SOCK_STREAM), outcome(socket.AF_NETLINK, socket.SOCK_RAW))
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    one.connect("/tmp/anything")
except FileNotFoundError:
    print("nobody there")
one.bind(b"\\0mine")
one.listen()
try:
    one.accept()
except PermissionError:
    print("no caller")
"""


def test_the_filter_for_gpus_allows_the_one_socket_that_the_cuda_driver_looks_for_a_server_with() -> None:
    done = subprocess.run([sys.executable, "-c", GPU_FILTER], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["made refused refused refused", "nobody there", "no caller"], done.stderr
