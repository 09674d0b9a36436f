"""Template kernels: traced operations rendered as C++ compute what PyTorch computes, at sizes that were never shown."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import judge.task_trace as task_trace
from archive.types import Record
from judge import wire
from judge.task_trace import Attribute, Trace, read_trace, trace_task
from judge.types import Status, Verdict
from search.errors import SearchError
from search.fast_math import FAST, definitions
from search.loops import Schedule
from search.templates import Templates, make_templates
from tasks.errors import TaskError
from tasks.loader import parse_task, variant_source
from tasks.types import Task
from warpsmith import load_cpp

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

A = 5
B = 24
C = 33
VARIANTS = {"other": {"A": 3, "B": 17, "C": 70}, "odd": {"A": 1, "B": 31, "C": 7}}
HELD_OUT = ("odd",)


class Model(nn.Module):
"""
FORWARD = "    def forward(self, x):\n"
CUBE = "\n\ndef get_inputs():\n    return [torch.randn(A, B, C)]\n\n\ndef get_init_inputs():\n    return []\n"


def one_input(body: str) -> str:
    return f"{HEAD}{FORWARD}        {body}\n{CUBE}"


def module(text: str) -> dict[str, Any]:
    made = types.ModuleType("text")
    exec(compile(text, "<text>", "exec"), made.__dict__)
    return made.__dict__


def traced_here(task: Task) -> list[Trace]:
    """As trace_task, without a jail: the tests' own tasks."""
    text = f"{task.source}\n\n{task_trace._tracer_text()}{task_trace._ENTRY}"
    return [
        read_trace(
            wire.pack_value(tuple(module(variant_source(text, variant.constants))["get_init_inputs"]()), []), "task"
        )
        for variant in task.variants
    ]


def templates_of(source: str) -> Templates:
    task = parse_task(source)
    return make_templates(task, traced_here(task))


def check_all_schedules(source: str, most: float = 2e-6) -> Templates:
    """Each first schedule on each variant against float64."""
    templates = templates_of(source)
    for schedule in templates.first_schedules():
        new = module(templates.render(schedule))
        for variant in templates.task.variants:
            old = module(variant_source(templates.task.source, variant.constants))
            arguments = old["get_init_inputs"]()
            torch.manual_seed(1)
            reference, made = old["Model"](*arguments).eval(), new["ModelNew"](*arguments).eval()
            made.load_state_dict(reference.state_dict())
            inputs = old["get_inputs"]()
            with torch.no_grad():
                found, plain = made(*inputs), reference(*inputs)
                right = reference.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
            assert type(found) is type(plain)
            for mine, eager, truth in zip(listed(found), listed(plain), listed(right), strict=True):
                assert mine.shape == eager.shape
                assert mine.dtype == eager.dtype
                scale = float(truth.abs().max()) or 1.0
                assert float((mine - truth).abs().max()) / scale < most, (schedule, variant.name)
    return templates


def listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, tuple | list) else [value]


@pytest.mark.parametrize(
    "body",
    [
        "return F.gelu(x) * x.sigmoid() + 1",
        "return torch.softmax(x * 0.5, dim=-1) + x",
        "return torch.softmax(x, dim=1)",
        "return torch.log_softmax(x, 1).mean(dim=1)",
        "return x - x.mean(dim=(1, 2), keepdim=True)",
        "return torch.logsumexp(x, dim=2)",
        "return x.sum(dim=0)",
        "return (x * x).sum()",
        "return x.var(dim=1), x.std(dim=-1, keepdim=True)",
        "a, b = x[:, :, : C // 2], x[:, :, -(C // 2) :]\n        return F.silu(a) * b",
        "y = x + 1\n        y.relu_()\n        return y * 2",
        "return torch.where(x > 0, torch.log1p(x.abs()), F.elu(x)).clamp(-1, 2)",
        "return x.transpose(1, 2) * 2 + 1",
        "return F.softplus(x) / x.norm(dim=2, keepdim=True), x.amax(dim=2)",
        "s = x.sum(2)\n        return (x * s.unsqueeze(2)).relu()",
        "return x * x.sum(dim=2)[:, :1].view(-1, 1, 1)",
        "return F.mish(x).exp().tanh().sin().cos().sqrt()",
    ],
)
def test_templates_compute_what_pytorch_computes(body: str) -> None:
    check_all_schedules(one_input(body), 2e-5 if "sqrt" in body else 2e-6)


def test_layers_keep_their_parameters_and_library_calls_stay() -> None:
    source = HEAD + (
        "    def __init__(self, dim, scale):\n        super(Model, self).__init__()\n"
        "        self.net = nn.Sequential(nn.Linear(dim, 16), nn.GELU())\n        self.norm = nn.LayerNorm(16)\n"
        "        self.scale = scale\n\n    def forward(self, x):\n"
        "        return self.norm(self.net(x) * self.scale).tanh()\n\n\n"
        "def get_inputs():\n    return [torch.randn(A, B, 12)]\n\n\ndef get_init_inputs():\n    return [12, 0.5]\n"
    )
    templates = check_all_schedules(source)
    assert (templates.kernels, templates.library_calls) == (1, 1)
    code = templates.render(Schedule())
    assert "super(ModelNew, self)" in code
    assert "get_inputs" not in code
    assert "HELD_OUT" not in code
    # The attribute is read when forward runs, so that another scale than the task's gives another result.
    new = module(code)
    torch.manual_seed(2)
    one, other = new["ModelNew"](12, 0.5).eval(), new["ModelNew"](12, 0.75).eval()
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 3, 12)
    with torch.no_grad():
        hidden = one.net(x)
        assert torch.allclose(other(x), one.norm(hidden * 0.75).tanh(), atol=1e-5)
        assert torch.allclose(one(x), one.norm(hidden * 0.5).tanh(), atol=1e-5)


def test_normalisation_by_running_statistics() -> None:
    source = HEAD + (
        "    def __init__(self, channels):\n        super().__init__()\n        self.bn = nn.BatchNorm1d(channels)\n"
        "        self.bn.running_mean.uniform_(-1, 1)\n        self.bn.running_var.uniform_(0.5, 2)\n\n"
        "    def forward(self, x, y):\n        return F.relu(self.bn(x)) + y\n\n\n"
        "def get_inputs():\n    return [torch.randn(A, 24, C), torch.randn(C)]\n\n\n"
        "def get_init_inputs():\n    return [24]\n"
    )
    assert check_all_schedules(source).library_calls == 0


def test_one_kernel_where_everything_fits_into_one() -> None:
    templates = templates_of(one_input("return torch.softmax(F.gelu(x) + 1, -1) * x.mean(-1, keepdim=True)"))
    assert templates.kernels == 1
    assert templates.space["stage"] == (True, False)
    assert templates.space["math"] == ("fast", "vector")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return x if x.sum() > 0 else -x", "looks at the values"),
        ("return x + torch.rand_like(x)", "random"),
        ("return x if x.shape[0] > 3 else -x", "other things for other shapes"),
        ("x.add_(1)\n        return x", "writes into a tensor"),
        ("return torch.sort(x)[0]", "none of its operations"),
        ("return x", "returns an input|none of its operations"),
    ],
)
def test_what_has_no_template_is_said_in_one_line(body: str, said: str) -> None:
    with pytest.raises((SearchError, TaskError), match=said) as caught:
        templates_of(one_input(body))
    assert "\n" not in str(caught.value)


def test_the_jail_gives_the_same_trace() -> None:
    task = parse_task(one_input("return F.leaky_relu(x, 0.25).sum(-1)"))
    assert list(trace_task(task)) == traced_here(task)


def test_a_damaged_trace_is_a_task_error() -> None:
    for packed in (None, {"tuple": ["{}"]}, {"tuple": ['{"attributes": [], "tensors": []}']}, {"tuple": ["no json"]}):
        with pytest.raises(TaskError):
            read_trace(packed, "task")


def test_attributes_are_told_from_equal_constants() -> None:
    source = HEAD + (
        "    def __init__(self, scale):\n        super().__init__()\n        self.scale = scale\n\n"
        "    def forward(self, x):\n        return x * 0.5 + torch.sin(x) * self.scale\n"
        + CUBE.replace("return []", "return [0.5]")
    )
    (trace, *_) = traced_here(parse_task(source))
    numbers = [a for o in trace.operations for a in o.args if isinstance(a, float | Attribute)]
    assert numbers == [0.5, Attribute(0.5, "scale")]


def test_schedules_are_tried_once_each() -> None:
    templates = templates_of(one_input("return torch.softmax(x, -1)"))
    total = math.prod(len(choices) for choices in templates.space.values())
    records: list[Record] = []
    while schedules := templates.next_schedules(records, count=3, seed=7):
        for schedule in schedules:
            speedup = 1.5 if schedule.stage else 1.2
            verdict = Verdict(status=Status.CORRECT, speedup=speedup)
            records.append(
                Record(
                    run_id="r",
                    task_name="t",
                    task_id="t",
                    source="template",
                    operator="template",
                    code=templates.render(schedule),
                    verdict=verdict,
                )
            )
    assert len({record.code for record in records}) == len(records) == total


@pytest.mark.parametrize(
    ("name", "right", "low", "high"),
    [("expf", torch.exp, -87.0, 87.0), ("tanhf", torch.tanh, -12.0, 12.0), ("erff", torch.erf, -6.0, 6.0)],
)
def test_fast_functions_are_as_exact_as_they_say(
    name: str, right: Callable[[torch.Tensor], torch.Tensor], low: float, high: float
) -> None:
    ours = FAST[name][0]
    body = f"for (long i = 0; i < n; i++) y[i] = {ours}(x[i]);"
    text = "\n".join([*definitions([name]), f'extern "C" void f(const float* x, float* y, long n) {{ {body} }}'])
    kernel = load_cpp(text)
    x = torch.linspace(low, high, 200_001)
    y = torch.empty_like(x)
    kernel.f(x, y, x.numel())
    truth = right(x.double())
    error = ((y - truth) / truth)[truth != 0].abs().max()
    stated = re.search(r"exp (\S+) in .* tanh (\S+), erf\s+(\S+)\.", load_doc())
    assert stated
    assert float(error) < float(stated[("expf", "tanhf", "erff").index(name) + 1]) * 1.2


def load_doc() -> str:
    import search.fast_math

    return " ".join((search.fast_math.__doc__ or "").split())
