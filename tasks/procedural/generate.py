"""Tasks without end: a seed gives an operator graph, sizes, a task file, and correct kernels for it.

    task = generated_task(7)
    task.source                      # a task file in KernelBench's form
    task.kernels("cpp")              # candidates, all correct, under many schedules

Splits go by composition, never by file: a *family of compositions* is the operators and how they are joined, whatever
the shapes that are broadcast, the constants, the names and the style. A hash of it decides, so that the same seed is in
the same split on every machine, and no family of the test split is ever trained on. Single operators are always in
train. Graphs of more than MOST_TRAINED operators are in no split but "longer".
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from tasks.errors import TaskError
from tasks.loader import parse_task
from tasks.procedural.draw import FAMILIES, draw_graph
from tasks.procedural.graph import Graph, nodes
from tasks.procedural.kernels import Kernel
from tasks.procedural.shapes import Shapes, draw_shapes
from tasks.procedural.torch_text import task_source
from tasks.types import Task

SPLITS = ("train", "validation", "test", "longer")
MOST_TRAINED = 6
"""Operators of the longest graphs in train, validation and test."""
_LONGEST = {"longer": 9}
"""What draw_graph is asked for; its own default for the other splits."""
_SHARES = {"validation": 0.06, "test": 0.12}
BACKENDS = ("cpp", "cuda")


@dataclass(frozen=True, kw_only=True)
class GeneratedTask:
    """A task that was drawn, with what it was drawn from."""

    seed: int
    graph: Graph
    shapes: Shapes
    split: str
    """One of SPLITS."""
    source: str
    """The task file."""

    @property
    def family(self) -> str:
        """One of draw.FAMILIES."""
        return self.graph.family

    @property
    def composition(self) -> str:
        """The family of compositions that decides the split."""
        return composition_family(self.graph)

    @cached_property
    def task(self) -> Task:
        """The task as the judge and the prompts take it."""
        return parse_task(self.source)

    def kernels(self, backend: str) -> list[Kernel]:
        """Its correct candidates, each code once; sizes are those that are timed on the backend's device.

        Raises TaskError: a backend that is not in BACKENDS.
        """
        if backend not in BACKENDS:
            raise TaskError(f"{backend}: no backend of generated kernels; choose {' or '.join(BACKENDS)}")
        shape = (self.shapes.cpu if backend == "cpp" else self.shapes.gpu)[0]
        render = import_module(f"tasks.procedural.{backend}_kernels").__dict__[f"{backend}_kernels"]
        found: list[Kernel] = render(self.graph, shape.rows, shape.cols, shape.inner or 0)
        return list({kernel.code: kernel for kernel in reversed(found)}.values())[::-1]


def generated_task(seed: int, *, longer: bool = False, family: str | None = None) -> GeneratedTask:
    """The task of a seed.

    Args:
        longer: draw graphs of more operators, those of the split "longer" (and others, for some seeds).
        family: one of draw.FAMILIES; drawn when left out.

    Raises TaskError: an unknown family.
    """
    if family is not None and family not in FAMILIES:
        raise TaskError(f"{family}: no family of tasks; choose among {', '.join(FAMILIES)}")
    graph = draw_graph(seed, _LONGEST["longer"], family) if longer else draw_graph(seed, family=family)
    shapes = draw_shapes(graph.family, seed)
    name = f"{graph.family}_{'long_' if longer else ''}{seed}"
    return GeneratedTask(
        seed=seed,
        graph=graph,
        shapes=shapes,
        split=split_of(graph),
        source=task_source(graph, name, shapes, seed),
    )


def tasks_of(split: str, seed: int = 0, family: str | None = None) -> Iterator[GeneratedTask]:
    """The distinct tasks of a split from a seed on, without end.

    Two tasks with the same graph, constants included, and the same timed sizes are the same, however they are written.

    Raises TaskError: an unknown split or family.
    """
    if split not in SPLITS:
        raise TaskError(f"{split}: no split; choose among {', '.join(SPLITS)}")
    seen: set[str] = set()
    for one in itertools.count(seed):
        task = generated_task(one, longer=split == "longer", family=family)
        if task.split == split and (mark := content(task)) not in seen:
            seen.add(mark)
            yield task


def content(task: GeneratedTask) -> str:
    """What makes a task the one that it is: its graph with constants, and its timed sizes."""
    numbers = [f"{node.number:g}" for node in nodes(task.graph.outputs)]
    sizes = [task.shapes.cpu[0].sizes, task.shapes.gpu[0].sizes]
    return f"{task.graph.composition} {' '.join(numbers)} {task.graph.flat} {sizes}"


def composition_family(graph: Graph) -> str:
    """The operators and how they are joined; inputs of any shape are "_"."""
    return re.sub(r"\b(?:full|row|col|left|right)\b", "_", graph.composition)


def split_of(graph: Graph) -> str:
    """The split of a graph, by a hash of its family of compositions."""
    if graph.operators > MOST_TRAINED:
        return "longer"
    if graph.operators <= 1:
        return "train"
    digest = hashlib.sha256(composition_family(graph).encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    for split, width in _SHARES.items():
        if share < width:
            return split
        share -= width
    return "train"


def procedural_tasks(source: str) -> list[Task]:
    """The tasks of "procedural:SPLIT:COUNT", or "procedural:SPLIT:COUNT:SEED" for those from a seed on.

    Raises TaskError: anything else.
    """
    parts = source.split(":")
    numbers = parts[2:]
    if len(parts) not in (3, 4) or not all(number.isdigit() for number in numbers) or int(numbers[0]) < 1:
        raise TaskError(f"{source}: write procedural:SPLIT:COUNT[:SEED], such as procedural:test:200")
    drawn = tasks_of(parts[1], int(numbers[1]) if len(numbers) > 1 else 0)
    return [one.task for one in itertools.islice(drawn, int(numbers[0]))]
