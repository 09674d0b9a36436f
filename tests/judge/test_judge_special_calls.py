"""Calls that are more than forward: guard bands, inputs that are not contiguous, gradients, emptied kernels."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from judge.api import Judge
from judge.gradients import GradientError, WithGradients
from judge.guards import Guards
from judge.honest_work import emptied
from judge.operations import OperationCounter
from judge.runner import strided_copies
from judge.settings import JudgeSettings
from judge.timing import too_fast_for_products
from judge.types import Candidate
from judge.wire import Compile
from tasks.loader import parse_task

QUICK = JudgeSettings(pairs=3, calls=4, warmup_calls=1, call_seconds=5, load_seconds=10)

TASK = """
import torch
ROWS = 64
COLS = 1024
VARIANTS = {"odd": {"ROWS": 7, "COLS": 33}}
HELD_OUT = ("odd",)
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x) * x + torch.cos(x)
def get_inputs():
    return [torch.randn(ROWS, COLS) + 0.2]
def get_init_inputs():
    return []
"""
KERNEL = """
import torch, warpsmith
kernel = warpsmith.load_cpp(r'''
#include <math.h>
extern "C" void run(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = sinf(x[i]) * x[i] + cosf(x[i]);
}
extern "C" void slope(const float* x, const float* g, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = g[i] * cosf(x[i]) * x[i];
}
''')
class Wave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        kernel.run(x, y, x.numel())
        ctx.save_for_backward(x)
        return y
    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        y = torch.empty_like(x)
        kernel.slope(x, gradient.contiguous(), y, x.numel())
        return y
"""
FORWARD = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.run(x, y, x.numel())
        return y
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(QUICK) as one:
        yield one


def test_guards_see_what_lies_before_and_past_a_tensor_and_leave_values_alone() -> None:
    with Guards() as guards:
        zeros, ones = torch.zeros(3, 5), torch.ones(7, dtype=torch.int64)
        copied = torch.arange(6.0).clone()
        empty = torch.empty(4), torch.empty(4, dtype=torch.int32), torch.empty(2, dtype=torch.bool)
    assert zeros.eq(0).all() and ones.eq(1).all() and copied.tolist() == [0, 1, 2, 3, 4, 5]
    assert empty[0].isnan().all() and empty[1].eq(-1).all() and empty[2].all()
    assert zeros.is_contiguous() and zeros.data_ptr() % 64 == 0
    assert guards.damage() == ""
    for offset, where in ((15, "past the end"), (-1, "before the beginning")):
        with Guards() as guards:
            zeros = torch.zeros(3, 5)
            zeros.as_strided((1,), (1,), zeros.storage_offset() + offset).fill_(1.0)
        assert guards.damage() == f"it writes {where} of a tensor of shape [3, 5]"
        assert guards.damage() == ""


def test_strided_copies_have_equal_values_and_other_strides() -> None:
    x, index = torch.randn(3, 4, 5), torch.arange(6).view(2, 3)
    (y, same), plain = strided_copies(([x, index], 2.0))
    assert torch.equal(x, y) and y.stride() == (20, 1, 4) and not y.is_contiguous()
    assert same is index and plain == 2.0


def test_gradients_are_those_of_the_formula_and_unused_inputs_get_zeros() -> None:
    def outputs(result: object) -> list[torch.Tensor]:
        return list(result) if isinstance(result, tuple) else [result]  # type: ignore[list-item]

    x, y, g = torch.randn(8), torch.randn(8), torch.randn(8)
    out, index, dx, dy = WithGradients(lambda x, y: (x**3, y.argmax()), outputs)((x, y), (g,))
    assert torch.allclose(out, x**3) and int(index) == int(y.argmax())
    assert torch.allclose(dx, 3 * x**2 * g) and dy.eq(0).all() and not dx.requires_grad
    with pytest.raises(GradientError, match="have none"):
        WithGradients(lambda x: x.detach() * 2, outputs)((x,), (g,))
    with pytest.raises(GradientError, match="should be"):
        WithGradients(lambda x: x[:3], outputs)((x,), (g,))


def test_an_emptied_source_defines_the_same_names() -> None:
    cpp = emptied(Compile(source='extern "C" void f(float* x) { x[0] = 1; }\nextern "C" int g() { return 3; }'))
    assert cpp.source == 'extern "C" long long f() { return 0; }\nextern "C" long long g() { return 0; }'
    cuda = emptied(
        Compile(source='extern "C" __global__ void k(float* x) { x[0] = 1; }', language="cuda", options=("-w",))
    )
    assert cuda.source == 'extern "C" __global__ void k() {}' and cuda.options == ("-w",)


@pytest.mark.slow
def test_a_write_past_the_end_is_told(judge: Judge) -> None:
    task = parse_task(TASK)
    assert judge.judge(task, Candidate(code=KERNEL + FORWARD)).is_correct
    for change, where in (("i <= n", "past the end"), ("i = -1; i < n", "before the beginning")):
        code = KERNEL.replace("i < n; i++) y[i] = sinf", f"{change}; i++) y[i] = sinf")
        code = code.replace("long i = 0; i = -1", "long i = -1")
        verdict = judge.judge(task, Candidate(code=code + FORWARD))
        assert (verdict.status, where in verdict.message) == ("incorrect", True), verdict.message


@pytest.mark.slow
def test_inputs_that_are_not_contiguous_are_given_where_the_task_says_so(judge: Judge) -> None:
    task = parse_task(TASK + "STRIDED = True\n")
    assert task.strided
    flat = FORWARD.replace("kernel.run(x, y", "kernel.run(x.as_strided((x.numel(),), (1,)), y")
    flat = flat.replace("torch.empty_like(x)", "torch.empty(x.shape)")
    assert judge.judge(parse_task(TASK), Candidate(code=KERNEL + flat)).is_correct
    verdict = judge.judge(task, Candidate(code=KERNEL + flat))
    assert verdict.status == "incorrect" and "not contiguous" in verdict.message
    careful = FORWARD.replace("y = torch", "x = x.contiguous()\n        y = torch")
    assert judge.judge(task, Candidate(code=KERNEL + careful)).is_correct


@pytest.mark.slow
def test_gradients_are_judged_where_the_task_asks_for_them(judge: Judge) -> None:
    task = parse_task(TASK + "BACKWARD = True\n")
    right = KERNEL + "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return Wave.apply(x)\n"
    verdict = judge.judge(task, Candidate(code=right))
    assert verdict.is_correct, verdict.message
    wrong = right.replace("g[i] * cosf(x[i]) * x[i]", "cosf(x[i]) * x[i]")
    verdict = judge.judge(task, Candidate(code=wrong))
    assert verdict.status == "incorrect" and "output 1" in verdict.message, verdict.message
    verdict = judge.judge(task, Candidate(code=KERNEL + FORWARD))
    assert verdict.status == "incorrect" and "autograd.Function" in verdict.message, verdict.message


@pytest.mark.slow
def test_kernels_that_the_answer_does_not_need_are_found_by_emptying_them(judge: Judge) -> None:
    task, deadline = parse_task(TASK), time.monotonic() + 60
    decoy = KERNEL + (
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        y = torch.empty(1)\n        kernel.run(x, y, 1)\n        return torch.sin(x) * x + torch.cos(x)\n"
    )
    assert judge._is_right_without_kernels(task, Candidate(code=decoy), deadline)
    assert not judge._is_right_without_kernels(task, Candidate(code=KERNEL + FORWARD), deadline)
    assert judge.judge(task, Candidate(code=KERNEL + FORWARD)).is_correct, "later candidates have their kernels"


PRODUCT = """
import torch
N = 256
VARIANTS = {"odd": {"N": 33}}
HELD_OUT = ("odd",)
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x @ y
def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]
def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_a_product_faster_than_the_machine_can_multiply_is_rejected() -> None:
    """256^3 multiplications and additions against a machine said to do a million a second."""
    slow = QUICK.model_copy(update={"peak_gflops": 1e-3})
    code = PRODUCT.split("VARIANTS")[0] + "class ModelNew" + PRODUCT.split("class Model")[1].split("def get_inputs")[0]
    with Judge(slow) as judge:
        verdict = judge.judge(parse_task(PRODUCT), Candidate(code=code))
    assert verdict.status == "rejected" and str(2 * 256**3) in verdict.message, verdict.message


def test_operations_are_counted_as_torchs_own_counter_does() -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    linear, convolution = torch.nn.Linear(7, 11), torch.nn.Conv2d(6, 8, 3, groups=2, padding=1)
    x, image, q, k = torch.randn(5, 7), torch.randn(2, 6, 9, 10), torch.randn(2, 3, 8, 4), torch.randn(2, 3, 6, 4)

    def work() -> None:
        linear(x).relu() @ torch.ones(11, 3)
        convolution(image)
        torch.bmm(torch.ones(4, 2, 3), torch.ones(4, 3, 5)) + 1

    with torch.no_grad(), OperationCounter() as ours:
        work()
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        work()
    assert ours.total == theirs.get_total_flops() > 0
    with OperationCounter() as ours:  # which torch's counter leaves out on a CPU
        attention(q, k, k)
    assert ours.total == 2 * (2 * 3) * (8 * 6 * 4 + 8 * 6 * 4)


def test_few_operations_are_never_too_fast() -> None:
    assert too_fast_for_products(1e-6, 0, 1e9) == ""
    assert too_fast_for_products(0.26, 10**9, 1e9) == "", "a quarter of the work may do"
    assert "1000000000 operations" in too_fast_for_products(0.24, 10**9, 1e9)
