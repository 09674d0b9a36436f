from __future__ import annotations

import itertools

import pytest

from tasks.errors import TaskError
from tasks.procedural.analysis import analysis, bytes_read, bytes_written, eager_bytes, operations
from tasks.procedural.draw import FAMILIES
from tasks.procedural.generate import (
    MOST_TRAINED,
    SPLITS,
    composition_family,
    content,
    generated_task,
    split_of,
    tasks_of,
)
from tasks.procedural.graph import COL, FULL, Graph, Node
from tasks.procedural.shapes import Shape
from tasks.sources import load_tasks


def _first(split: str, number: int, seed: int = 0) -> list:
    return list(itertools.islice(tasks_of(split, seed), number))


def _graph() -> Graph:
    """softmax(x + bias)."""
    x, bias = Node(op="input", shape=FULL, name="x"), Node(op="input", shape=COL, name="bias")
    added = Node(op="add", shape=FULL, args=(x, bias))
    return Graph(family="row_norm", outputs=(Node(op="softmax", shape=FULL, args=(added,)),), inputs=(x, bias))


def test_a_seed_gives_the_same_task_again() -> None:
    for seed in range(40):
        one, other = generated_task(seed), generated_task(seed)
        assert (one.source, one.split) == (other.source, other.split)
        assert [k.code for k in one.kernels("cpp")] == [k.code for k in other.kernels("cpp")]


def test_splits_share_no_family_of_compositions() -> None:
    found = {split: {task.composition for task in _first(split, 150)} for split in SPLITS}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not found[one] & found[other], (one, other)


def test_longer_tasks_have_more_operators_than_any_other() -> None:
    assert min(task.graph.operators for task in _first("longer", 60)) > MOST_TRAINED
    for split in ("train", "validation", "test"):
        assert max(task.graph.operators for task in _first(split, 100)) <= MOST_TRAINED


def test_the_split_looks_at_operators_only() -> None:
    x, y = Node(op="input", shape=FULL, name="x"), Node(op="input", shape=FULL, name="y")
    b = Node(op="input", shape=COL, name="bias")

    def graph(other: Node, number: float) -> Graph:
        scaled = Node(op="scale", shape=FULL, args=(x,), number=number)
        out = Node(op="tanh", shape=FULL, args=(Node(op="mul", shape=FULL, args=(scaled, other)),))
        return Graph(family="elementwise", outputs=(out,), inputs=(x, other))

    assert composition_family(graph(y, 2.0)) == composition_family(graph(b, 0.5)) == "tanh(mul(scale(_),_))"
    assert split_of(graph(y, 2.0)) == split_of(graph(b, 0.5))


def test_tasks_of_a_split_are_distinct_and_can_be_read() -> None:
    tasks = _first("train", 200, seed=5000)
    assert len({content(task) for task in tasks}) == 200
    for task in tasks:
        assert task.task.backends == ("cpp", "cuda")
        assert [v.held_out for v in task.task.variants] == [False, False, True]
        assert task.task.gpu_variants[0].name == "default"


def test_a_family_can_be_asked_for() -> None:
    for family in FAMILIES:
        assert generated_task(3, family=family).family == family
    with pytest.raises(TaskError, match="no family"):
        generated_task(3, family="convolution")
    with pytest.raises(TaskError, match="no split"):
        next(tasks_of("dev"))
    with pytest.raises(TaskError, match="no backend"):
        generated_task(3).kernels("triton")


def test_the_analysis_counts_bytes_and_operations() -> None:
    graph, shape = _graph(), Shape(name="default", rows=1000, cols=250)
    assert bytes_read(graph, shape) == 4 * (250_000 + 250)
    assert bytes_written(graph, shape) == 4 * 250_000
    # add reads x and bias and writes; softmax reads and writes
    assert eager_bytes(graph, shape) == 4 * (2 * 250_000 + 250) + 4 * 2 * 250_000
    assert operations(graph, shape) == 250_000 * (1 + 14)
    text = analysis(graph, shape, "cpp")
    assert "Reads 1 MB, writes 1 MB, 3.75 MFLOP: 1.9 FLOP a byte, bound by memory." in text
    assert "PyTorch runs 2 operators one by one and moves 4 MB" in text


def test_a_product_of_large_matrices_is_bound_by_arithmetic() -> None:
    a, b = Node(op="input", shape="left", name="a"), Node(op="input", shape="right", name="b")
    graph = Graph(family="matmul", outputs=(Node(op="matmul", shape=FULL, args=(a, b)),), inputs=(a, b))
    shape = Shape(name="default", rows=512, cols=512, inner=512)
    assert operations(graph, shape) == 2 * 512**3
    assert "bound by arithmetic" in analysis(graph, shape, "cuda")


def test_a_name_stands_for_tasks_of_a_split() -> None:
    tasks = load_tasks("procedural:test:5:40")
    assert [task.task_id for task in tasks] == [task.task.task_id for task in _first("test", 5, 40)]
    assert len(load_tasks("procedural:longer:2")) == 2
    for wrong in ("procedural", "procedural:test", "procedural:test:x", "procedural:test:0", "procedural:dev:3"):
        with pytest.raises(TaskError):
            load_tasks(wrong)
