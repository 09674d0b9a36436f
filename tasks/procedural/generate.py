"""Tasks without end: a seed gives an operator graph, sizes, a task file, and correct kernels for it.

    task = generated_task(7)
    task.source                      # a task file in KernelBench's form
    task.kernels("cpp")              # candidates, all correct, under many schedules

Splits go by composition, never by file: a *family of compositions* is the operators and how they are joined, whatever
the shapes that are broadcast, the constants, the names and the style. A hash of it decides, so that the same seed is in
the same split on every machine, and no family of the test split is ever trained on. Single operators are in train,
except those that are a task of the bundled suite: what the suite computes is in test. Graphs of more than MOST_TRAINED
operators are in no split but "longer".
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
SUITE = frozenset(
    {
        "add(gelu(add(_,_)),_)",
        "add(rms_norm(add(_,_)),_)",
        "column_sum(_)",
        "cumsum(_)",
        "gelu(_)",
        "gelu(add(matmul(_,_),_))",
        "layer_norm(_)",
        "layer_norm(add(_,_))",
        "matmul(_,_)",
        "mish(_)",
        "mul(layer_norm(_),_)",
        "mul(rms_norm(_),_)",
        "mul(rms_norm(add(_,_)),_)",
        "mul(silu(add(_,_)),_)",
        "relu(matmul(_,_))",
        "row_logsumexp(_)",
        "row_mean(_)",
        "softmax(_)",
        "square(relu(_))",
        "scale(square(relu(_)))",
        "transpose(_)",
    }
)
"""Families of compositions that a task of the bundled suite is; `warpsmith tasks decontaminate` found them."""
_SHARES = {"validation": 0.06, "test": 0.12}
BACKENDS = ("cpp", "cuda")
MOST_ASKED = 100_000
"""Tasks that one name can stand for."""
_EXAMPLE = "procedural:test:200"


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
    family = composition_family(graph)
    if family in SUITE:
        return "test"
    if graph.operators <= 1:
        return "train"
    digest = hashlib.sha256(family.encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    for split, width in _SHARES.items():
        if share < width:
            return split
        share -= width
    return "train"


def procedural_tasks(source: str) -> list[Task]:
    """The tasks that "procedural:SPLIT:NUMBER" names, or "procedural:SPLIT:NUMBER:SEED" with the first seed.

    Raises TaskError: another form, an unknown split, no number.
    """
    name, _, rest = source.partition(":")
    split, *numbers = rest.split(":")
    if name != "procedural" or not 1 <= len(numbers) <= 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise TaskError(f"{source}: wants procedural:SPLIT:NUMBER or procedural:SPLIT:NUMBER:SEED, as in {_EXAMPLE}")
    number, seed = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
    if not 0 < number <= MOST_ASKED:
        raise TaskError(f"{source}: asks for {number} tasks; 1 to {MOST_ASKED} can be asked for")
    return [task.task for task in itertools.islice(tasks_of(split, seed), number)]
