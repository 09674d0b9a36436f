from __future__ import annotations

import pytest

from tasks.drafts import draft_task
from tasks.errors import TaskError
from tasks.loader import parse_task

_FUNCTION = """\
import torch

# What we run today.
def my_op(x, scale):
    return torch.softmax(x * scale, dim=-1)

sample_inputs = [
    torch.randn(8, 16),
    torch.rand(16),
]
"""
_MODULE = """\
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        return self.linear(x).relu()

init_inputs = [16]
sample_inputs = (torch.randn(4, 16),)
"""


def _run(source: str) -> dict:
    scope: dict = {"__name__": "task"}
    exec(compile(source, "task", "exec"), scope)
    return scope


def test_a_function_becomes_a_task_with_fresh_inputs() -> None:
    draft = draft_task(_FUNCTION, "my_op.py")
    parse_task(draft.source, "my_op_task.py")
    scope = _run(draft.source)
    first, second = scope["get_inputs"](), scope["get_inputs"]()
    assert not first[0].equal(second[0]), "inputs are drawn at each call"
    assert scope["Model"](*scope["get_init_inputs"]())(*first).sum(-1).allclose(first[1].new_ones(8))
    assert "# What we run today." in draft.source and "sample_inputs" not in draft.source
    assert any("one shape only" in note for note in draft.notes)


def test_a_module_keeps_its_constructors_arguments() -> None:
    draft = draft_task(_MODULE, "block.py")
    scope = _run(draft.source)
    assert scope["get_init_inputs"]() == [16]
    assert scope["Model"](*scope["get_init_inputs"]())(*scope["get_inputs"]()).shape == (4, 16)
    assert draft.target == "Block"


def test_a_task_file_stays_as_it_is() -> None:
    source = draft_task(_FUNCTION, "my_op.py").source
    again = draft_task(source, "task.py")
    assert again.source == source and again.notes == ("it is a task file already",)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n", "my.py:1: not Python"),
        ("import torch\nsample_inputs = [torch.ones(3)]\n", "no torch.nn.Module and no function"),
        (_FUNCTION.split("sample_inputs")[0], "no sample inputs"),
        (_FUNCTION.replace("    torch.rand(16),\n", ""), "my.py:7: 1 sample inputs, my_op takes 2"),
        (_FUNCTION + "def other(x):\n    return x\n", "several could be meant (my_op, other); name one with --target"),
        (_MODULE.replace("init_inputs = [16]", ""), "Block is made with width; add a line init_inputs"),
        (_FUNCTION.replace("[\n    torch.randn(8, 16),\n    torch.rand(16),\n]", "torch.ones(3)"), "must be a list"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(source: str, message: str) -> None:
    with pytest.raises(TaskError) as error:
        draft_task(source, "my.py")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_target_is_chosen_by_name() -> None:
    source = _FUNCTION + "def other(x):\n    return x\n"
    assert draft_task(source, "my.py", "my_op").target == "my_op"
    with pytest.raises(TaskError, match="no module or function third"):
        draft_task(source, "my.py", "third")
