"""The PyTorch text of a graph: a task file, in one of many styles."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

from tasks.procedural.graph import COL, FULL, LEFT, RIGHT, ROW, Graph, Node, nodes
from tasks.procedural.operators import OPERATORS, ROW_REDUCTIONS
from tasks.procedural.shapes import Shapes

_INPUT_TEXTS = ("torch.randn({s})", "torch.randn({s})", "torch.rand({s}) - 0.3", "torch.randn({s}) * 0.5 + 0.5")
_SIZE_NAMES = (("ROWS", "COLS", "INNER"), ("N", "D", "K"), ("BATCH", "DIM", "DEPTH"), ("M", "N", "K"))
_FRESH = ("t", "u", "v", "w", "p", "q2", "s2", "t2", "u2", "v2", "w2", "p2")


@dataclass(frozen=True, kw_only=True)
class Names:
    """The module constants that hold the sizes."""

    rows: str
    cols: str
    inner: str

    def constants(self, rows: int, cols: int, inner: int | None) -> dict[str, int]:
        """Of one variant."""
        return {self.rows: rows, self.cols: cols} | ({} if inner is None else {self.inner: inner})


def task_source(graph: Graph, name: str, shapes: Shapes, seed: int) -> str:
    """The task file; the seed decides its style."""
    rng = random.Random(f"style {seed}")
    names = Names(**dict(zip(("rows", "cols", "inner"), rng.choice(_SIZE_NAMES), strict=True)))
    lines, result = _forward(graph, rng)
    body = [*lines, f"return {result}"]
    parameters = [node for node in graph.inputs if node.name in graph.parameters]
    given = [node for node in graph.inputs if node.name not in graph.parameters]
    size = "dim" if names.cols != "dim" else "size"
    nn = rng.choice(("nn", "torch.nn"))
    head = ["import torch"]
    if nn == "nn":
        head.append("import torch.nn as nn")
    if any("F." in line for line in body):
        head.append("import torch.nn.functional as F")
    sizes = [f"NAME = {name!r}", f"LEVEL = {2 if graph.operators > 1 else 1}"]
    sizes += [f"{key} = {value}" for key, value in names.constants(*shapes.cpu[0].sizes).items()]
    sizes += [
        _table("VARIANTS", {s.name: names.constants(*s.sizes) for s in shapes.cpu[1:]}),
        _table("GPU_VARIANTS", {s.name: names.constants(*s.sizes) for s in shapes.gpu}),
        f"HELD_OUT = {tuple(s.name for s in shapes.cpu if s.held_out)!r}",
        'BACKENDS = ("cpp", "cuda")',
    ]
    model = [f"class Model({nn}.Module):"]
    if parameters:
        model += [f"    def __init__(self, {size}):", "        super().__init__()"]
        model += [f"        self.{p.name} = {nn}.Parameter(torch.randn({size}))" for p in parameters]
        model.append("")
    model.append(f"    def forward({', '.join(['self', *(node.name for node in given)])}):")
    model += [f"        {line}" for line in body]
    drawn = [rng.choice(_INPUT_TEXTS).format(s=_size_text(node, names)) for node in given]
    inputs = ["def get_inputs():", f"    return [{', '.join(drawn)}]"]
    init = ["def get_init_inputs():", f"    return [{names.cols if parameters else ''}]"]
    blocks = ["\n".join(head), "\n".join(sizes), "\n".join(model), "\n".join(inputs), "\n".join(init)]
    return "\n\n".join(blocks[:2]) + "\n\n\n" + "\n\n\n".join(blocks[2:]) + "\n"


def _table(name: str, rows: dict[str, dict[str, int]]) -> str:
    return "\n".join([f"{name} = {{", *(f"    {key!r}: {value!r}," for key, value in rows.items()), "}"])


def _size_text(node: Node, names: Names) -> str:
    return {
        FULL: f"{names.rows}, {names.cols}",
        COL: names.cols,
        ROW: f"{names.rows}, 1",
        LEFT: f"{names.rows}, {names.inner}",
        RIGHT: f"{names.inner}, {names.cols}",
    }[node.shape]


def _forward(graph: Graph, rng: random.Random) -> tuple[list[str], str]:
    """Lines before the return, and what is returned."""
    order = list(nodes(graph.outputs))
    uses = Counter(argument for node in order for argument in node.args)
    uses.update(graph.outputs)
    templates = {node: rng.choice(OPERATORS[node.op].torch) for node in order if node.op != "input"}
    twice = {
        argument
        for node, text in templates.items()
        for i, argument in enumerate(node.args)
        if text.count(f"{{{i}}}") > 1
    }
    dim, step, reuse = rng.choice((1, -1)), rng.choice((0.0, 0.4, 1.0)), rng.random() < 0.5
    texts: dict[Node, str] = {}
    lines: list[str] = []
    fresh = iter(name for name in _FRESH if name not in {node.name for node in graph.inputs})
    gone: Counter[Node] = Counter()
    for node in order:
        if node.op == "input":
            texts[node] = f"self.{node.name}" if node.name in graph.parameters else node.name
            continue
        arguments = [texts[argument] for argument in node.args]
        template = templates[node].replace("{d}", str(dim)).replace("{n}", f"{node.number:g}")
        if graph.flat and node is graph.outputs[-1] and node.op in ROW_REDUCTIONS:
            template = template.replace(", keepdim=True", "")
        text = _filled(template, arguments)
        gone.update(node.args)
        is_result = node in graph.outputs and uses[node] == 1
        if not is_result and (uses[node] > 1 or node in twice or rng.random() < step):
            first = node.args[0]
            free = gone[first] == uses[first] and texts[first].isidentifier()
            name = texts[first] if reuse and free else next(fresh)
            lines.append(f"{name} = {text}")
            text = name
        texts[node] = text
    return lines, ", ".join(texts[output] for output in graph.outputs)


def _filled(template: str, arguments: list[str]) -> str:
    """The template with its arguments, in brackets where an operator beside them would bind more tightly."""
    for i, argument in enumerate(arguments):
        inside = argument if _is_atom(argument) else f"({argument})"
        whole = re.compile(rf"(?<=[(])\{{{i}\}}(?=[,)])")  # a whole argument of a call needs no brackets
        pieces = [piece.replace(f"{{{i}}}", inside) for piece in whole.split(template)]
        template = argument.join(pieces)
    return template


def _is_atom(text: str) -> bool:
    """Whether nothing in the text stands outside brackets that binds less tightly than a method call."""
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth == 0 and character in " -+*/@":
            return False
    return True
