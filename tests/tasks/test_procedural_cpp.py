from __future__ import annotations

import itertools
import random

import pytest

from cluster.generated_cpp import cpp_source, measure
from judge.load_cpp import parse_functions
from judge.settings import JudgeSettings
from tasks.procedural.draw import FAMILIES
from tasks.procedural.generate import GeneratedTask, tasks_of
from tasks.procedural.kernels import Kernel
from tasks.procedural.mutations import FAULTS, broken


def _drawn(split: str, seed: int, number: int, per_task: int) -> list[tuple[GeneratedTask, list[Kernel]]]:
    """Tasks with some of their kernels, drawn."""
    found = []
    for task in itertools.islice(tasks_of(split, seed), number):
        kernels = task.kernels("cpp")
        found.append((task, random.Random(task.seed).sample(kernels, min(per_task, len(kernels)))))
    return found


def _faults(chosen: list[tuple[GeneratedTask, list[Kernel]]]) -> list[str]:
    return [
        f"{task.task.name} {task.graph.composition} {one.kernel.schedule}: {one.fault}"
        for (task, _), measured in zip(chosen, measure(chosen, JudgeSettings(), timed=False), strict=True)
        for one in measured
        if not one.correct
    ]


def test_every_family_has_several_schedules_that_python_can_call() -> None:
    for family in FAMILIES:
        for task in itertools.islice(tasks_of("train", 0, family), 10):
            kernels = task.kernels("cpp")
            assert len({kernel.schedule for kernel in kernels}) == len(kernels) >= 4
            for kernel in kernels:
                assert list(parse_functions(cpp_source(kernel.code))) == ["run"]
                assert kernel.note


def test_one_kernel_of_each_family_is_right() -> None:
    chosen = []
    for family in FAMILIES:
        task = next(tasks_of("train", 7, family))
        chosen.append((task, task.kernels("cpp")[-1:]))
    assert _faults(chosen) == []


@pytest.mark.slow
def test_two_hundred_kernels_are_right_on_every_size_and_distribution() -> None:
    chosen = _drawn("train", 300, 50, 3) + _drawn("longer", 300, 17, 3)
    assert sum(len(kernels) for _, kernels in chosen) >= 200
    assert _faults(chosen) == []


def test_a_wrong_kernel_is_found_and_one_that_does_not_compile_spares_the_others() -> None:
    task = next(tasks_of("train", 0, "row_norm"))
    good = task.kernels("cpp")[0]
    wrong = good.code.replace("s += ", "s -= ", 1).replace("m = fmaxf(m", "m = fminf(m", 1)
    torn = good.code.replace("long o = r * cols;", "long o = r * cols", 1)
    assert good.code not in (wrong, torn)
    kernels = [
        Kernel(backend="cpp", schedule=(("case", name),), code=code, note=name)
        for name, code in (("torn", torn), ("good", good.code), ("wrong", wrong))
    ]
    first, second, third = measure([(task, kernels)], JudgeSettings(), timed=False)[0]
    assert "does not compile" in first.fault
    assert second.correct
    assert "should be" in third.fault


def test_every_fault_can_be_made_and_changes_one_place() -> None:
    seen = set()
    for family in FAMILIES:
        for task in itertools.islice(tasks_of("train", 0, family), 4):
            for kernel in task.kernels("cpp"):
                for one in broken(kernel, random.Random(1)):
                    seen.add(one.fault)
                    assert one.code != kernel.code
                    assert one.explanation.endswith(".")
    assert seen == set(FAULTS)
