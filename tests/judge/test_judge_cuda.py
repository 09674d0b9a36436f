"""The judge on a GPU: what is honest passes, what cheats does not. Skipped without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from judge.api import Judge
from judge.jail import LAYERS
from judge.settings import JudgeSettings
from judge.types import Candidate, Verdict
from tasks.loader import parse_task

pytestmark = pytest.mark.gpu

TASK = parse_task("""
import torch

ROWS = 4096
COLS = 1024
VARIANTS = {"flat": {"ROWS": 8, "COLS": 8192}, "odd": {"ROWS": 61, "COLS": 1031}}
HELD_OUT = ("odd",)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) ** 2 * 0.5


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
""")

KERNEL = '''
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void k(const float4* x, float4* y, const float* tail_x, float* tail_y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 v = x[i];
        v.x = fmaxf(v.x, 0.f); v.y = fmaxf(v.y, 0.f); v.z = fmaxf(v.z, 0.f); v.w = fmaxf(v.w, 0.f);
        v.x *= v.x * .5f; v.y *= v.y * .5f; v.z *= v.z * .5f; v.w *= v.w * .5f;
        y[i] = v;
    }
    if (i < n % 4) {
        float v = fmaxf(tail_x[n - 1 - i], 0.f);
        tail_y[n - 1 - i] = v * v * .5f;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernels.k((n // 4 + 256) // 256, 256, x, y, x, y, n)
        return y
'''

PLAIN = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) ** 2 * 0.5
"""

SAME_WORK_FALSE_CLOCK = PLAIN + "\ntorch.cuda.Event.elapsed_time = lambda self, other: 1e-3\n"
ANSWERS_BEFORE_IT_IS_DONE = SAME_WORK_FALSE_CLOCK + (
    "torch.cuda.Event.synchronize = lambda self: None\ntorch.cuda.synchronize = lambda *a: None\n"
)
FORWARD = "import torch\n\n{before}\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"


@pytest.fixture(scope="module")
def cuda_judge() -> Iterator[Judge]:
    with Judge(JudgeSettings(device="cuda", call_seconds=5.0)) as judge:
        yield judge


def _verdict(judge: Judge, code: str) -> Verdict:
    return judge.judge(TASK, Candidate(code=code))


def test_one_fused_kernel_wins_against_every_baseline_and_says_how_it_was_timed(cuda_judge: Judge) -> None:
    verdict = _verdict(cuda_judge, KERNEL)
    assert verdict.status == "win", verdict.message
    assert verdict.timed_as == "graph"
    times = verdict.baselines.model_dump()
    assert set(times) == {"eager", "compile", "reduce_overhead", "cuda_graph"} and all(times.values()), times
    # Four bytes read and four written for each element; no H200 moves more than 4.9 TB/s, L2 excepted.
    assert verdict.candidate_ms is not None and 0.002 < verdict.candidate_ms < 0.1


def test_every_isolation_layer_stands_around_cuda(cuda_judge: Judge) -> None:
    assert cuda_judge.layers() == LAYERS


def test_the_task_itself_is_no_win(cuda_judge: Judge) -> None:
    verdict = _verdict(cuda_judge, PLAIN)
    assert verdict.status == "correct", verdict.message
    assert verdict.speedup_low is not None and verdict.speedup_low < 1.01


@pytest.mark.parametrize("code", [SAME_WORK_FALSE_CLOCK, ANSWERS_BEFORE_IT_IS_DONE], ids=["false clock", "no wait"])
def test_false_clocks_gain_nothing(cuda_judge: Judge, code: str) -> None:
    verdict = _verdict(cuda_judge, code)
    assert verdict.status in ("correct", "incorrect", "rejected"), verdict.message
    if verdict.status == "correct":
        assert verdict.speedup_low is not None and verdict.speedup_low < 1.01, verdict.message


@pytest.mark.parametrize(
    ("status", "body", "before"),
    [
        ("incorrect", "return torch.zeros_like(x)", ""),
        ("incorrect", "return x", ""),
        ("incorrect", "return torch.relu_(x).square_().mul_(0.5)", ""),
        ("incorrect", "return torch.relu_(x).square() * 0.5", ""),
        ("incorrect", "return (torch.relu(x.half()) ** 2 * 0.5).float()", ""),
        ("incorrect", "return (torch.relu(x.bfloat16()) ** 2 * 0.5).float()", ""),
        ("incorrect", "return (torch.relu(x) ** 2 * 0.5).double()", ""),
        ("incorrect", "return (torch.relu(x) ** 2 * 0.5).cpu()", ""),
        ("incorrect", "return (torch.relu(x) ** 2 * 0.5)[:1]", ""),
        ("incorrect", "return seen.setdefault(x.data_ptr(), torch.relu(x) ** 2 * 0.5)", "seen = {}"),
        ("incorrect", "return seen.setdefault(x.shape, torch.relu(x) ** 2 * 0.5)", "seen = {}"),
        ("incorrect", "return torch.empty_like(x)", ""),
        ("runtime_error", "return undefined", ""),
        ("runtime_error", "import os; os._exit(0)", ""),
    ],
)
def test_what_is_wrong_is_told(cuda_judge: Judge, status: str, body: str, before: str) -> None:
    verdict = _verdict(cuda_judge, FORWARD.format(body=body, before=before))
    assert verdict.status == status, verdict.message


def test_a_kernel_that_does_not_compile_is_told_with_its_line(cuda_judge: Judge) -> None:
    verdict = _verdict(cuda_judge, KERNEL.replace("float4 v = x[i];", "float4 v = nothing[i];"))
    assert verdict.status == "compile_error"
    assert "line 5" in verdict.message and "nothing" in verdict.message, verdict.message


def test_a_kernel_that_never_ends_or_breaks_its_context_costs_one_candidate_only(cuda_judge: Judge) -> None:
    endless = KERNEL.replace("float4 v =", "while (n > 0) n |= 1; float4 v =")
    astray = KERNEL.replace("y[i] = v", "y[i + (1LL << 40)] = v")
    assert _verdict(cuda_judge, endless).status == "timeout"
    assert _verdict(cuda_judge, astray).status == "runtime_error"
    assert _verdict(cuda_judge, KERNEL).status == "win"


def test_a_write_past_the_end_is_told_on_a_gpu(cuda_judge: Judge) -> None:
    verdict = _verdict(cuda_judge, KERNEL.replace("y[i] = v;", "y[i] = v; if (i == n / 4 - 1) y[i + 1] = v;"))
    assert verdict.status == "incorrect" and "past the end" in verdict.message, verdict.message


def test_a_kernel_that_the_answer_does_not_need_wins_nothing_on_a_gpu(cuda_judge: Judge) -> None:
    decoy = KERNEL.split("class ModelNew")[0] + (
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        y = torch.empty(1024)\n        kernels.k(1, 256, x, y, x, y, 1024)\n"
        "        return torch.relu(x).square_().mul_(0.5)\n"
    )
    verdict = _verdict(cuda_judge, decoy)
    assert verdict.status == "correct", verdict.message


def test_gradients_are_judged_on_a_gpu(cuda_judge: Judge) -> None:
    task = parse_task(TASK.source + "\nBACKWARD = True\n")
    verdict = cuda_judge.judge(task, Candidate(code=PLAIN))
    assert verdict.is_correct, verdict.message
    verdict = cuda_judge.judge(task, Candidate(code=KERNEL))
    assert verdict.status == "incorrect" and "autograd.Function" in verdict.message, verdict.message


def test_the_gpu_is_watched_while_it_times(cuda_judge: Judge) -> None:
    verdict = _verdict(cuda_judge, KERNEL)
    assert not verdict.flags, verdict.flags
    assert verdict.hardware.get("sm_mhz", "0")[0].isdigit()


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.maximum(tl.load(x + i, mask=i < n, other=0.0), 0.0)
    tl.store(y + i, v * v * 0.5, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def test_triton_is_compiled_in_the_builder(cuda_judge: Judge) -> None:
    verdict = _verdict(cuda_judge, TRITON)
    assert verdict.is_correct, verdict.message
    assert verdict.timed_as == "graph" and "seccomp" in verdict.sandbox


INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <c10/cuda/CUDAStream.h>
__global__ void k(const float* x, float* y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) { float v = fmaxf(x[i], 0.f); y[i] = v * v * .5f; }
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    k<<<(x.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
module = load_inline(name="squared", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=CUDA,
                     functions=["forward"], verbose=False)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x)
'''


@pytest.mark.slow
def test_load_inline_with_cuda_sources_is_built_in_the_builder(cuda_judge: Judge) -> None:
    verdict = _verdict(cuda_judge, INLINE)
    assert verdict.is_correct, verdict.message
