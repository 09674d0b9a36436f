"""The bundled suite: its form, and every expert kernel against float64."""

from __future__ import annotations

import ast
import types
from typing import Any

import pytest

from search.prompts import reference_code
from tasks.experts import QUALITIES, expert_kernels
from tasks.loader import suite_tasks, variant_source
from tasks.types import Task, Variant

TASKS = suite_tasks()
CASES = [pytest.param(task, variant, id=f"{task.name}-{variant.name}") for task in TASKS for variant in task.variants]
EPS = 2.0**-23


def test_suite_has_distinct_tasks_over_three_levels() -> None:
    assert len(TASKS) == len({task.name for task in TASKS}) == len({task.task_id for task in TASKS}) >= 64
    assert {task.level for task in TASKS} == {1, 2, 3}
    assert [task.level for task in TASKS] == sorted(task.level for task in TASKS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_task_is_short_and_has_a_shown_and_a_held_out_variant(task: Task) -> None:
    assert task.path
    assert f"level{task.level}/{task.name}/task.py" in task.path.replace("\\", "/")
    assert len(task.variants) == 3
    assert [variant.held_out for variant in task.variants] == [False, False, True]
    sizes = task.variants[2].constants.values()
    assert any(size % 2 for size in sizes), "the held-out sizes are odd"
    assert len(task.source.splitlines()) <= 50
    assert len(reference_code(task.source)) <= 900, "about 320 tokens in a prompt"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_experts_are_two_short_candidates_with_an_analysis(task: Task) -> None:
    kernels = expert_kernels(task.name)
    assert {"good", "plain"} <= {kernel.quality for kernel in kernels} <= set(QUALITIES)
    assert kernels[0].code != kernels[1].code
    for kernel in kernels:
        tree = ast.parse(kernel.code)
        assert ast.get_docstring(tree) is None
        assert "ModelNew" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert 20 <= len(kernel.analysis.split()) <= 80
        assert '"""' not in kernel.analysis
        assert len(kernel.code) <= (1350 if task.level < 3 else 1900)


def test_a_task_from_elsewhere_has_no_experts() -> None:
    assert expert_kernels("my_op") == ()


def test_real_token_counts_stay_within_a_small_policys_context() -> None:
    from learner.pretrained import SMOLLM2, prepare_model

    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(prepare_model(SMOLLM2))
    for task in TASKS:
        tokens = {kernel.quality: len(tokenizer.encode(kernel.code)) for kernel in expert_kernels(task.name)}
        assert len(tokenizer.encode(reference_code(task.source))) <= 320
        assert tokens["good"] <= (600 if task.level < 3 else 790)
        assert tokens["plain"] <= (320 if task.level < 3 else 460)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "variant"), CASES)
def test_experts_are_as_exact_as_eager_on_every_distribution(task: Task, variant: Variant) -> None:
    """Scaled error |c - t| / max(|t|, rms t) at most max(4 x eager's, 64 eps); inputs stay as they were."""
    import torch

    source = variant_source(task.source, variant.constants)
    space = run(source)
    torch.manual_seed(1)
    arguments = space["get_init_inputs"]()
    eager, exact = space["Model"](*arguments), run(source)["Model"](*arguments).double()
    exact.load_state_dict(eager.state_dict())
    candidates = {}
    for kernel in expert_kernels(task.name):
        candidates[kernel.quality] = run(kernel.code)["ModelNew"](*arguments)
        candidates[kernel.quality].load_state_dict(eager.state_dict())
    with torch.no_grad():
        for distribution in task.distributions:
            inputs = [redrawn(x, distribution) for x in space["get_inputs"]()]
            truths = outputs_of(exact(*[x.double() if x.is_floating_point() else x for x in inputs]))
            honests = outputs_of(eager(*inputs))
            for quality, candidate in candidates.items():
                before = [x.clone() for x in inputs]
                outputs = outputs_of(candidate(*inputs))
                assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))
                for number, (output, honest, truth) in enumerate(zip(outputs, honests, truths, strict=True)):
                    where = (quality, distribution, f"output {number}")
                    assert (output.shape, output.dtype) == (honest.shape, honest.dtype), where
                    if not output.is_floating_point():
                        assert bool(((output == truth) | (output == honest)).all()), where
                        continue
                    scale = truth.abs().clamp(min=truth.square().mean().sqrt().item())
                    allowed = max(4 * ((honest - truth).abs() / scale).max().item(), 64 * EPS)
                    assert ((output - truth).abs() / scale).max().item() <= allowed, where


def outputs_of(result: Any) -> list[Any]:
    """The tensors of a forward's result."""
    return list(result) if isinstance(result, tuple | list) else [result]


def run(source: str) -> dict[str, Any]:
    module = types.ModuleType("source")
    exec(compile(source, "source", "exec"), module.__dict__)
    return module.__dict__


def redrawn(x: Any, distribution: str) -> Any:
    import torch

    if not x.is_floating_point():
        return x
    zeros = torch.rand_like(x) < 0.5
    return {
        "given": x,
        "shifted": x + 1,
        "large": x * 50,
        "ties": x.round().masked_fill(zeros, 0),
    }[distribution]
