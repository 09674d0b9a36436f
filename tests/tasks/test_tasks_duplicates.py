from __future__ import annotations

import itertools

from tasks.duplicates import EXACT, SAME_OPERATORS, SIMILAR, find_duplicates, normal_form, operator_graph, profile_of
from tasks.loader import parse_task, suite_tasks
from tasks.procedural.generate import tasks_of
from tasks.types import Task

_FIRST = '''
import torch
import torch.nn.functional as F

NAME = "first"
ROWS = 64


class Model(torch.nn.Module):
    """Says what it does."""

    def forward(self, x, bias):
        return F.relu(x + bias) * 2.0


def get_inputs():
    return [torch.randn(ROWS, 8), torch.randn(8)]


def get_init_inputs():
    return []
'''
_RENAMED = (
    _FIRST.replace("first", "second")
    .replace("bias", "b")
    .replace("x", "h")
    .replace('    """Says what it does."""\n', "")
)
_METHODS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, data):
        data = torch.add(data, self.weight)
        data = data.clamp(min=0)
        return torch.mul(data, 0.5)


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [16]
"""
_OTHER = _FIRST.replace("F.relu", "torch.tanh")


def _task(source: str, name: str) -> Task:
    return parse_task(source, f"{name}.py")


def test_names_comments_and_describing_constants_do_not_count() -> None:
    assert normal_form(_FIRST) == normal_form(_RENAMED)
    assert normal_form(_FIRST) != normal_form(_OTHER)
    assert normal_form(_FIRST) != normal_form(_FIRST.replace("ROWS = 64", "ROWS = 65"))


def test_operators_are_the_same_in_every_style() -> None:
    assert operator_graph(_FIRST) == operator_graph(_METHODS) == "mul(relu(add(_,_)))"
    assert operator_graph(_OTHER) == "mul(tanh(add(_,_)))"


def test_what_cannot_be_traced_is_compared_by_its_text() -> None:
    branching = _FIRST.replace("return F.relu", "if x.sum() > 0:\n            return x\n        return F.relu")
    assert operator_graph(branching) is None
    one = profile_of(_task(branching, "one"), trace=True)
    other = profile_of(_task(branching, "other"), trace=True)
    assert [found.kind for found in find_duplicates([one], [other])] == [EXACT]


def test_the_strongest_match_is_named() -> None:
    test = [profile_of(_task(source, name), trace=True) for source, name in ((_FIRST, "a"), (_OTHER, "b"))]
    train = [
        profile_of(_task(source, name), trace=True) for source, name in ((_METHODS, "methods"), (_RENAMED, "renamed"))
    ]
    found = find_duplicates(train, test)
    assert [(one.kind, one.test, one.train) for one in found] == [(EXACT, "first", "second")]
    assert [(one.kind, one.train) for one in find_duplicates(train[:1], test)] == [(SAME_OPERATORS, "methods")]


def test_a_small_change_of_a_long_text_is_similar() -> None:
    long = _FIRST.replace("* 2.0", "* 2.0" + " + x.sin() - x.cos() * x.exp() + x.abs() / 3.0" * 4)
    changed = long.replace("3.0", "5.0", 1)
    one, other = (profile_of(_task(source, "long"), trace=False) for source in (long, changed))
    (found,) = find_duplicates([one], [other])
    assert found.kind == SIMILAR and 0.9 <= found.share < 1


def test_the_suite_is_not_in_the_generated_train_split() -> None:
    suite = [profile_of(task, trace=True) for task in suite_tasks()]
    train = [profile_of(task.task, trace=True) for task in itertools.islice(tasks_of("train"), 150)]
    assert all(one.operators for one in train)
    assert [one for one in find_duplicates(train, suite) if one.kind != SIMILAR] == []


def test_the_test_split_is_not_in_the_train_split() -> None:
    test = [profile_of(task.task, trace=True) for task in itertools.islice(tasks_of("test"), 60)]
    train = [profile_of(task.task, trace=True) for task in itertools.islice(tasks_of("train"), 100)]
    assert find_duplicates(train, test) == []
