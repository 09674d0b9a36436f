"""Candidates per hour: this judge beside the common procedure, on the same kernels.

    .venv/bin/python benchmarks/judge_throughput.py --cpp 32 --inline 2

The common procedure is that of most public evaluators: in one process, ``torch.utils.cpp_extension.load_inline``, 5
correctness trials with ``torch.allclose``, 100 timed runs of reference and candidate each. It runs in a process of its
own, once for all its candidates. The kernels are distinct versions of one; warpsmith judges them as ``load_cpp`` text
(--cpp) and as ``load_inline`` text (--inline), the common procedure always by ``load_inline``, since that is how it
takes C++; it needs as long for each, so --common of them suffice. Each verdict of warpsmith must be right, --warmup of
them are judged before the clock starts.
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
from tasks.loader import parse_task

TASK = """
import torch

N = 1 << 18
VARIANTS = {"odd": {"N": 65537}}
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
COMMON = """
import sys, time
import torch

torch.set_num_threads(1)
reference = {}
exec(open(sys.argv[1]).read(), reference)
for path in sys.argv[2:]:
    began = time.perf_counter()
    candidate = {}
    exec(open(path).read(), candidate)
    torch.manual_seed(42)
    old, new = reference["Model"]().eval(), candidate["ModelNew"]().eval()
    with torch.no_grad():
        for _ in range(5):
            inputs = reference["get_inputs"]()
            assert torch.allclose(old(*inputs), new(*inputs), atol=1e-2, rtol=1e-2)
        times = []
        for model in (old, new):
            for _ in range(3):
                model(*inputs)
            start = time.perf_counter()
            for _ in range(100):
                model(*inputs)
            times.append(time.perf_counter() - start)
    print(time.perf_counter() - began, times[0] / times[1], flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpp", type=int, default=32)
    parser.add_argument("--inline", type=int, default=2)
    parser.add_argument("--common", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=1)
    arguments = parser.parse_args()
    stamp = int(time.time()) % 100000  # no cache of an earlier run may answer
    cpp = [source(CPP, stamp + number) for number in range(arguments.cpp + arguments.warmup)]
    inline = [source(INLINE, stamp + 1000 + number) for number in range(arguments.inline)]
    common = [source(INLINE, stamp + 2000 + number) for number in range(arguments.common)]
    ours = {"load_cpp": judged(cpp, arguments.warmup), "load_inline": judged(inline, 0) if inline else []}
    theirs = common_procedure(common)
    print(f"{'':28} {'candidates':>10} {'median s':>9} {'an hour':>8} {'ratio':>7}")
    base = len(theirs) / sum(theirs) if theirs else 0.0
    if theirs:
        _row("common, load_inline", theirs, base)
    for kind, seconds in ours.items():
        if seconds:
            _row(f"warpsmith, {kind}", seconds, base)


def source(template: str, number: int) -> str:
    return template.format(loop=LOOP.format(block=1024 + number), number=number)


def judged(codes: Sequence[str], warmup: int) -> list[float]:
    """Seconds of each verdict, with the default settings."""
    task = parse_task(TASK)
    seconds = []
    with Judge(JudgeSettings()) as judge:
        for code in codes:
            began = time.perf_counter()
            verdict = judge.judge(task, Candidate(code=code))
            seconds.append(time.perf_counter() - began)
            assert verdict.is_correct, verdict.message
    return seconds[warmup:]


def common_procedure(codes: Sequence[str]) -> list[float]:
    """Seconds of each candidate in one process with an empty cache of extensions."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.py") for number in range(len(codes) + 2)]
        for path, text in zip(paths, [COMMON, TASK, *codes], strict=True):
            path.write_text(text)
        done = subprocess.run(
            [sys.executable, *map(str, paths)],
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
