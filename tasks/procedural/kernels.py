"""What kernels of both languages share: the candidate file around a kernel, and how graphs become loop bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.procedural.c_text import statements
from tasks.procedural.graph import COL, FULL, RIGHT, ROW, TURNED, Graph, Node
from tasks.procedural.lower import RowPlan

HOISTED = ("k", "k2", "k3", "k4", "k5", "k6")
"""Variables that are the same for a whole row."""
OUTPUTS = ("out", "out2")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A correct candidate for a procedural task."""

    backend: str
    """"cuda" or "cpp"."""
    schedule: tuple[tuple[str, int | str], ...]
    """The choices it was rendered with, such as (("block", 256), ("vector", 4))."""
    code: str
    """The candidate file."""
    note: str
    """What the schedule does, in words, for the answer's algorithm design."""


def candidate(graph: Graph, backend: str, source: str, launch: Sequence[str]) -> str:
    """The candidate file: the kernel's text, ModelNew, and the launch (lines of forward, outputs being allocated)."""
    parameters = [node.name for node in graph.inputs if node.name in graph.parameters]
    given = [node.name for node in graph.inputs if node.name not in graph.parameters]
    lines = ["import torch", "import warpsmith", "", f'kernel = warpsmith.load_{backend}(r"""', source, '""")', "", ""]
    lines.append("class ModelNew(torch.nn.Module):")
    if parameters:
        lines += ["    def __init__(self, dim):", "        super().__init__()"]
        lines += [f"        self.{name} = torch.nn.Parameter(torch.randn(dim))" for name in parameters]
        lines.append("")
    lines.append(f"    def forward({', '.join(['self', *given])}):")
    made = [f"{name} = {_empty(graph, node)}" for name, node in zip(OUTPUTS, graph.outputs, strict=False)]
    returned = ", ".join(OUTPUTS[: len(graph.outputs)])
    lines += [f"        {line}" for line in (*made, *launch, f"return {returned}")]
    return "\n".join(lines) + "\n"


def arguments(graph: Graph) -> str:
    """The tensors as Python passes them to the kernel."""
    names = [f"self.{n.name}" if n.name in graph.parameters else n.name for n in graph.inputs]
    return ", ".join([*names, *OUTPUTS[: len(graph.outputs)]])


def parameters(graph: Graph) -> str:
    """The same in the kernel's declaration."""
    return ", ".join(
        [f"const float* {node.name}" for node in graph.inputs]
        + [f"float* {name}" for name in OUTPUTS[: len(graph.outputs)]]
    )


def rows_of(graph: Graph) -> str:
    """Python text of the number of rows."""
    return f"{graph.inputs[0].name}.shape[0]"


def cols_of(graph: Graph) -> str:
    """Python text of the number of columns."""
    wide = next((node for node in graph.inputs if node.shape == RIGHT), graph.inputs[0])
    return f"{wide.name}.shape[1]"


def _empty(graph: Graph, node: Node) -> str:
    first = graph.inputs[0].name
    if node.shape == FULL and graph.family != "matmul":
        return f"torch.empty_like({first})"
    if node.shape == ROW and graph.flat and node is graph.outputs[-1]:
        return f"{first}.new_empty({rows_of(graph)})"
    sizes = {
        FULL: f"{rows_of(graph)}, {cols_of(graph)}",
        ROW: f"{rows_of(graph)}, 1",
        COL: cols_of(graph),
        TURNED: f"{cols_of(graph)}, {rows_of(graph)}",
    }
    return f"{first}.new_empty({sizes[node.shape]})"


def used_inputs(targets: Sequence[Node], leaves: Mapping[Node, str] | None = None) -> list[Node]:
    """The inputs that the targets read, down to the leaves."""
    found: list[Node] = []
    seen: set[Node] = set(leaves or {})

    def visit(node: Node) -> None:
        if node in seen:
            return
        seen.add(node)
        if node.op == "input":
            found.append(node)
        for argument in node.args:
            visit(argument)

    for target in targets:
        visit(target)
    return found


def loads(inputs: Sequence[Node], at: Mapping[str, str]) -> dict[Node, str]:
    """How each input is read, by its shape: ``at`` has an index for each."""
    return {node: f"{node.name}[{at[node.shape]}]" for node in inputs}


def function(node: Node, header: str, *, fast: bool = False) -> str:
    """An elementwise node as a C function ``f`` of the inputs below it; empty when it is an input itself."""
    if node.op == "input":
        return ""
    inputs = used_inputs([node])
    body = statements([node], {i: i.name for i in inputs}, fast=fast)
    *before, last = body.lines
    lines = [f"{header} float f({', '.join(f'float {i.name}' for i in inputs)}) {{"]
    lines += [f"    {line}" for line in before]
    return "\n".join([*lines, f"    return {last.split(' = ', 1)[1]}", "}"])


def call(node: Node, at: Mapping[str, str]) -> str:
    """The value of a node that ``function`` renders, at some place."""
    inputs = used_inputs([node])
    texts = loads(inputs, at)
    return texts[node] if node.op == "input" else f"f({', '.join(texts[i] for i in inputs)})"


def accumulate(reduction: str, name: str, value: str) -> str:
    """The statement that takes one more value in."""
    return f"{name} += {value};" if reduction == "sum" else f"{name} = f{reduction}f({name}, {value});"


def reads_cut(plan: RowPlan, lines: Sequence[str]) -> bool:
    """Whether a pass needs the value of the cut."""
    return any(_has_word(line, "v") for line in lines)


def _has_word(line: str, word: str) -> bool:
    padded = "".join(character if character.isalnum() or character == "_" else " " for character in line)
    return word in padded.split()
