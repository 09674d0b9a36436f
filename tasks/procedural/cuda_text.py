"""What the CUDA renderers share: names, helper functions of a kernel, and the sentences about memory traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.procedural.c_text import VARIABLES, statements
from tasks.procedural.graph import COL, FULL, LEFT, RIGHT, ROW, TURNED, Graph, Node
from tasks.procedural.kernels import OUTPUTS, Kernel, candidate, used_inputs

SMS = 132
"""Multiprocessors of an H200: launches of a fixed size are multiples of it."""

PACK = "template <int W> struct alignas(4 * W) Pack { float v[W]; };"
"""W floats that one thread moves at once; W = 4 makes loads of 16 bytes."""

_COMBINE = {"sum": "v += {0};", "max": "v = fmaxf(v, {0});", "min": "v = fminf(v, {0});"}
START = {"sum": "0.f", "max": "-1e38f", "min": "1e38f"}
"""With what an accumulator starts from; no value of a task reaches 1e38."""


def variables(graph: Graph) -> list[str]:
    """Names for intermediate values that no input has; "v" is left out, it is the value that a loop starts from."""
    taken = {node.name for node in graph.inputs}
    return [name for name in VARIABLES[1:] if name not in taken]


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """The lines, four spaces deeper for each step."""
    return [f"{'    ' * depth}{line}" for line in lines]


def block(head: str, lines: Sequence[str]) -> list[str]:
    """A loop, a condition or a function with a body."""
    return [f"{head} {{", *indented(lines), "}"]


def leaves(graph: Graph, full: str, row: str = "", col: str = "") -> dict[Node, str]:
    """How each input is read: texts of the index for its shape."""
    at = {FULL: full, LEFT: full, ROW: row, COL: col, RIGHT: full}
    return {node: f"{node.name}[{at[node.shape]}]" for node in graph.inputs}


def prologue(graph: Graph, node: Node) -> list[str]:
    """What stands before the reduction, product or turn, as a function ``f`` of inputs; nothing for an input itself."""
    if node.op == "input":
        return []
    inputs = used_inputs([node])
    body = statements([node], {i: i.name for i in inputs}, names=["v", *variables(graph)])
    head = f"__device__ float f({', '.join(f'float {i.name}' for i in inputs)})"
    return block(head, [*body.lines, f"return {body.results[0]};"])


def called(node: Node, texts: Mapping[Node, str]) -> str:
    """The value of a node that ``prologue`` renders."""
    if node.op == "input":
        return texts[node]
    return f"f({', '.join(texts[i] for i in used_inputs([node]))})"


def lane_helper(reduction: str, lanes: int = 32) -> list[str]:
    """A function that combines a value over a warp, or over groups of ``lanes`` neighbouring threads."""
    name, first = ("warp", "16") if lanes == 32 else ("group", str(lanes // 2))
    line = _COMBINE[reduction].format("__shfl_xor_sync(~0u, v, k)")
    return block(
        f"__device__ float {name}_{reduction}(float v)",
        [f"for (int k = {first}; k; k /= 2) {line}", "return v;"],
    )


def block_helper(reduction: str) -> list[str]:
    """The same over a block whose size is a multiple of 32."""
    return block(
        f"__device__ float block_{reduction}(float v)",
        [
            "__shared__ float part[32];",
            f"for (int k = 16; k; k /= 2) {_COMBINE[reduction].format('__shfl_xor_sync(~0u, v, k)')}",
            "__syncthreads();",
            "part[threadIdx.x / 32] = v;",
            "__syncthreads();",
            f"v = {START[reduction]};",
            f"for (int k = 0; k < blockDim.x / 32; k++) {_COMBINE[reduction].format('part[k]')}",
            "return v;",
        ],
    )


def declared(graph: Graph, *sizes: str) -> str:
    """The kernel's parameters: inputs, outputs and these sizes."""
    tensors = [f"const float* {node.name}" for node in graph.inputs]
    tensors += [f"float* {name}" for name, _ in outputs(graph)]
    return ", ".join([*tensors, *(f"int {size}" for size in sizes)])


def passed(graph: Graph, *sizes: str) -> str:
    """The same as arguments from inside another function of the source."""
    return ", ".join([*(node.name for node in graph.inputs), *(name for name, _ in outputs(graph)), *sizes])


def outputs(graph: Graph) -> list[tuple[str, Node]]:
    """Each output with its name."""
    return list(zip(OUTPUTS, graph.outputs, strict=False))


def python_arguments(graph: Graph, *sizes: str) -> str:
    """The same as arguments from Python."""
    names = [f"self.{n.name}" if n.name in graph.parameters else n.name for n in graph.inputs]
    return ", ".join([*names, *(name for name, _ in outputs(graph)), *sizes])


def global_function(parameters: str, lines: Sequence[str], name: str = "run") -> list[str]:
    """A kernel that Python can call."""
    return block(f'extern "C" __global__ void {name}({parameters})', lines)


def made(
    graph: Graph, schedule: Mapping[str, int | str], source: Sequence[Sequence[str]], launch: Sequence[str], note: str
) -> Kernel:
    """The candidate; ``source`` is functions, each as lines."""
    text = "\n\n".join("\n".join(part) for part in source if part)
    return Kernel(
        backend="cuda",
        schedule=tuple(schedule.items()),
        code=candidate(graph, "cuda", text, launch),
        note=note,
    )


def traffic(graph: Graph, reads: int = 1) -> str:
    """How many bytes an element costs, as half a sentence, when inputs of full size are read ``reads`` times."""
    wide = sum(node.shape == FULL for node in graph.inputs)
    written = sum(node.shape in (FULL, TURNED) for node in graph.outputs)
    text = f"{4 * wide * reads} bytes are read"
    text += f" and {4 * written} written for each element" if written else " for each element"
    return text + (f" ({reads} reads, the later ones mostly from cache)" if reads > 1 else "")
