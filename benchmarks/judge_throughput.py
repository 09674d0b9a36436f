"""Candidates per hour: this judge beside the common procedure, on the same kernels.

    .venv/bin/python benchmarks/judge_throughput.py --cpp 32 --inline 2
    .venv/bin/python benchmarks/judge_throughput.py --device cuda --cuda 32 --inline 1 --common 1

The common procedure is that of most public evaluators: in one process, ``torch.utils.cpp_extension.load_inline``, 5
correctness trials with ``torch.allclose``, 100 timed runs of reference and candidate each. It runs in a process of its
own, once for all its candidates. The kernels are distinct versions of one; warpsmith judges them as ``load_cpp`` text
(--cpp) and as ``load_inline`` text (--inline), the common procedure always by ``load_inline``, since that is how it
takes C++; it needs as long for each, so --common of them suffice. Each verdict of warpsmith must be right, --warmup of
them are judged before the clock starts. On a GPU the same with CUDA kernels (``load_cuda``, and ``load_inline`` by
nvcc), timed by events; torch.compile as a baseline falls into the warm-up. --seconds ends warpsmith's rows early.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from judge.api import Judge
from judge.settings import JudgeSettings
from judge.types import Candidate
from tasks.loader import parse_task, variant_source

TASK = """
import torch

N = 1 << 18
VARIANTS = {"odd": {"N": 65537}}
GPU_VARIANTS = {"default": {"N": 16777216}, "odd": {"N": 65537}}
HELD_OUT = ("odd",)


class Model(torch.nn.Module):
    def forward(self, x, b):
        return torch.relu(x * 2.0 + b) * x + 1.0


def get_inputs():
    return [torch.randn(N) + 0.3, torch.randn(N)]


def get_init_inputs():
    return []
"""
LOOP = (
    "for (long start = 0; start < n; start += {block}) for (long i = start; i < n && i < start + {block}; i++) "
    "{{ float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }}"
)
CPP = '''import torch

import warpsmith

kernel = warpsmith.load_cpp(r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {{ {loop} }}
""")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
'''
INLINE = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor run(torch::Tensor xs, torch::Tensor bs) {{
    auto ys = torch::empty_like(xs);
    const float *x = xs.data_ptr<float>(), *b = bs.data_ptr<float>();
    float* y = ys.data_ptr<float>();
    long n = xs.numel();
    {loop}
    return ys;
}}
"""
FLAGS = ["-O3", "-march=native"]
kernel = load_inline(name="kernel{number}", cpp_sources=SOURCE, functions=["run"], extra_cflags=FLAGS)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return kernel.run(x, b)
'''
CUDA_LOOP = (
    "long i = blockIdx.x * (long){block} + threadIdx.x; "
    "if (i < n) {{ float t = x[i] * 2.0f + b[i]; y[i] = fmaxf(t, 0.0f) * x[i] + 1.0f; }}"
)
CUDA = '''import torch

import warpsmith

kernel = warpsmith.load_cuda(r"""
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {{ /* {number} */ {loop} }}
""")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f((x.numel() + {block} - 1) // {block}, {block}, x, b, y, x.numel())
        return y
'''
CUDA_INLINE = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void f(const float* x, const float* b, float* y, long n) {{ {loop} }}
torch::Tensor run(torch::Tensor x, torch::Tensor b) {{
    auto y = torch::empty_like(x);
    f<<<(x.numel() + {block} - 1) / {block}, {block}, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
"""
kernel = load_inline(name="kernel{number}", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor b);",
                     cuda_sources=SOURCE, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return kernel.run(x, b)
'''
COMMON = """
import sys, time
import torch

device = sys.argv[1]
torch.set_num_threads(1)
if device == "cuda":
    torch.set_default_device("cuda")
reference = {}
exec(open(sys.argv[2]).read(), reference)


def seconds(model, inputs):
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(100):
            model(*inputs)
        return time.perf_counter() - start
    total = 0.0
    for _ in range(100):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        total += start.elapsed_time(end) * 1e-3
    return total


for path in sys.argv[3:]:
    began = time.perf_counter()
    candidate = {}
    exec(open(path).read(), candidate)
    torch.manual_seed(42)
    old, new = reference["Model"]().eval().to(device), candidate["ModelNew"]().eval().to(device)
    with torch.no_grad():
        for _ in range(5):
            inputs = reference["get_inputs"]()
            assert torch.allclose(old(*inputs), new(*inputs), atol=1e-2, rtol=1e-2)
        times = []
        for model in (old, new):
            for _ in range(3):
                model(*inputs)
            times.append(seconds(model, inputs))
    print(time.perf_counter() - began, times[0] / times[1], flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cpp", "--cuda", dest="kernels", type=int, default=32)
    parser.add_argument("--inline", type=int, default=2)
    parser.add_argument("--common", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    stamp = int(time.time()) % 100000  # no cache of an earlier run may answer
    on_gpu = arguments.device == "cuda"
    kernels, kind = (CUDA, "load_cuda") if on_gpu else (CPP, "load_cpp")
    inlines = CUDA_INLINE if on_gpu else INLINE
    short = [source(kernels, stamp + number) for number in range(arguments.kernels + arguments.warmup)]
    inline = [source(inlines, stamp + 1000 + number) for number in range(arguments.inline)]
    common = [source(inlines, stamp + 2000 + number) for number in range(arguments.common)]
    judged_here = {kind: judged(short, arguments.warmup, arguments.device, arguments.seconds)}
    _row(f"warpsmith, {kind}", judged_here[kind], 0.0)
    theirs = common_procedure(common, arguments.device)
    if inline:
        judged_here["load_inline"] = judged(inline, 0, arguments.device, arguments.seconds)
    print(f"{'':28} {'candidates':>10} {'median s':>9} {'an hour':>8} {'ratio':>7}")
    base = len(theirs) / sum(theirs) if theirs else 0.0
    if theirs:
        _row("common, load_inline", theirs, base)
    for kind, seconds in judged_here.items():
        if seconds:
            _row(f"warpsmith, {kind}", seconds, base)


def source(template: str, number: int) -> str:
    """A distinct version: blocks of another length, or on a GPU of one of eight."""
    on_gpu = "__global__" in template
    block = 128 * (1 + number % 8) if on_gpu else 1024 + number
    loop = (CUDA_LOOP if on_gpu else LOOP).format(block=block)
    return template.format(loop=loop, number=number, block=block)


def judged(codes: Sequence[str], warmup: int, device: str, most_seconds: float) -> list[float]:
    """Seconds of each verdict, with the default settings."""
    task = parse_task(TASK)
    seconds: list[float] = []
    end = time.monotonic() + most_seconds
    with Judge(JudgeSettings.model_validate({"device": device})) as judge:
        for code in codes:
            if len(seconds) > warmup and time.monotonic() > end:
                break
            began = time.perf_counter()
            verdict = judge.judge(task, Candidate(code=code))
            seconds.append(time.perf_counter() - began)
            assert verdict.is_correct, verdict.message
    return seconds[warmup:]


def common_procedure(codes: Sequence[str], device: str) -> list[float]:
    """Seconds of each candidate in one process with an empty cache of extensions."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.py") for number in range(len(codes) + 2)]
        task = variant_source(TASK, parse_task(TASK).variants_on(device)[0].constants)
        for path, text in zip(paths, [COMMON, task, *codes], strict=True):
            path.write_text(text)
        done = subprocess.run(
            [sys.executable, str(paths[0]), device, *map(str, paths[1:])],
            capture_output=True,
            text=True,
            check=False,
            env={**_environment(), "TORCH_EXTENSIONS_DIR": f"{folder}/extensions"},
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return [float(line.split()[0]) for line in done.stdout.splitlines()]


def _environment() -> dict[str, str]:
    folder = Path(sys.executable).parent  # ninja may lie beside the interpreter
    return {**os.environ, "PATH": f"{folder}:{os.environ.get('PATH', '')}"}


def _row(label: str, seconds: Sequence[float], base: float) -> None:
    rate = len(seconds) / sum(seconds)
    median = sorted(seconds)[len(seconds) // 2]
    ratio = f"{rate / base:6.1f}x" if base else ""
    print(f"{label:28} {len(seconds):10} {median:9.2f} {rate * 3600:8.0f} {ratio:>7}")


if __name__ == "__main__":
    main()
