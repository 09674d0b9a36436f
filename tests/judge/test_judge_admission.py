"""Which tasks may be judged: a good one, and one of each kind of degenerate task, by the real judge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from judge.admission import Admission, admit
from judge.api import Judge
from judge.settings import JudgeSettings
from tasks.loader import parse_task

TEMPLATE = """
import torch

N = 4096
VARIANTS = {{"odd": {{"N": 4097}}}}
{constants}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(1))

    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn(N) + 0.3, torch.randn(N)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeSettings(pairs=3, calls=4, warmup_calls=1)) as one:
        yield one


def admission(judge: Judge, body: str, constants: str = "") -> Admission:
    return admit(judge, parse_task(TEMPLATE.format(body=body, constants=constants)))


def test_a_good_task_is_admitted_and_says_what_was_tried(judge: Judge) -> None:
    found = admission(judge, "return torch.relu(x * self.w) * y + x")
    assert found.admitted, found.faults
    assert [check.name for check in found.checks] == [
        "reference",
        "zeros",
        "mean",
        "stale output",
        "copy of input 0",
        "copy of input 1",
        "input 0 replaced",
        "input 1 replaced",
        "parameter 0 replaced",
    ]
    assert all(check.ok for check in found.checks)
    assert all(check.verdict.status == "incorrect" for check in found.checks[1:])


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("return (x * y * self.w) - (x * y * self.w)", "zero output", "zeros passes"),
        ("return torch.softmax(x[:, None] * y[:, None] * self.w, dim=1)", "constant output", "the mean passes"),
        ("return torch.arange(x.numel()) * self.w", "inputs do not matter", "the same for all inputs"),
        ("return x + 0 * y + 0 * self.w", "output is input", "copy of input 0"),
        ("return torch.relu(x * self.w + 0 * y)", "dead input", "input 1 does not matter"),
        ("return torch.relu(x * y) + 0 * self.w", "dead parameter", "parameter 0 does not matter"),
        ("return (x * y * self.w + 1e8) - 1e8", "output below tolerance", "lost in rounding"),
        ("return x * y * self.w + torch.rand_like(x)", "output below tolerance", "random"),
        ("return x[:N - 1] * y[:N - 1] * self.w", "reference fails", "is incorrect"),
        ("return torch.nosuch(x)", "cannot run", "the reference fails"),
    ],
)
def test_a_degenerate_task_is_named_with_the_reason(judge: Judge, body: str, kind: str, words: str) -> None:
    faults = admission(judge, body).faults
    assert kind in [fault.kind for fault in faults]
    assert words in next(fault.reason for fault in faults if fault.kind == kind)
    assert all("\n" not in fault.reason for fault in faults)


def test_a_tolerance_as_large_as_the_output_is_named(judge: Judge) -> None:
    faults = admission(judge, "return torch.relu(x * self.w) * y + x", "TOLERANCE = 0.5").faults
    assert [fault.kind for fault in faults] == ["output below tolerance"]


@pytest.mark.parametrize(
    "body",
    [
        "return (x * self.w).sum() * y",  # forgets the order of x
        "return torch.nn.functional.normalize(x * self.w, dim=0) * y",  # forgets its scale
        "return x.std() / x.mean() * y * self.w",  # forgets both
        "return [x * self.w, torch.argmax(y)]",  # two outputs, one of integers
    ],
)
def test_an_input_that_matters_little_is_not_called_dead(judge: Judge, body: str) -> None:
    assert admission(judge, body).faults == ()


def test_integer_and_bool_inputs_are_probed_within_their_range(judge: Judge) -> None:
    source = TEMPLATE.format(body="return torch.where(y, table[x] * self.w, x + 0.5)", constants="")
    source = source.replace(
        "[torch.randn(N) + 0.3, torch.randn(N)]", "[torch.randint(0, 64, (N,)), torch.rand(N) < 0.5]"
    )
    source = source.replace("class Model", "table = torch.arange(64) ** 2 * 0.25\n\n\nclass Model")
    assert admit(judge, parse_task(source)).faults == ()
