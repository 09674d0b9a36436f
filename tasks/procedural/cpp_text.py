"""The C++ around loops: headers, the function's frame, and how its inner loops may be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.procedural.c_text import FEXP
from tasks.procedural.graph import Graph, Node, nodes
from tasks.procedural.kernels import Kernel, arguments, candidate, cols_of, parameters, rows_of
from tasks.procedural.operators import LOW, OPERATORS, Operator

LIBM, VECTOR, FAST = "libm", "vector", "fast"
"""How a kernel does its maths: the C library's functions one by one; vector code with the library's vector functions;
the same with the operators' fast texts (fexp for exp, no branches)."""

_HEADERS = {
    LIBM: "#include <math.h>",
    VECTOR: '#pragma GCC optimize("fast-math,no-associative-math")\n#define __FAST_MATH__ 1\n#include <math.h>',
}
_NEED_FAST = frozenset({"sigmoid", "silu", "softplus", "mish", "elu"})
"""With fast-math the first two divide by inf, which its approximate division is not made for; in the others a branch
keeps the loop from becoming vector code."""
_NO_OPERATOR = Operator(torch=())
_MATHS_NOTES = {
    LIBM: "plain calls of the C library",
    VECTOR: "fast-math, so that the loop becomes vector code",
    FAST: "fast-math and a polynomial for exp, so that the loop becomes vector code",
}


@dataclass(frozen=True, kw_only=True)
class Style:
    """What all families can choose."""

    maths: str
    """LIBM, VECTOR or FAST."""
    threads: bool

    @property
    def fast(self) -> bool:
        """Whether operators use their fast text."""
        return self.maths == FAST

    @property
    def schedule(self) -> tuple[tuple[str, int | str], ...]:
        """For Kernel.schedule."""
        return ("maths", self.maths), ("threads", "all" if self.threads else 1)

    @property
    def note(self) -> str:
        """For Kernel.note."""
        return _MATHS_NOTES[self.maths] + ("; rows shared by OpenMP threads" if self.threads else "")

    def parallel(self, *, simd: bool = False) -> list[str]:
        """The pragma of an outer loop, or of the only one."""
        if not self.threads:
            return ["#pragma omp simd"] if simd and self.maths != LIBM else []
        return ["#pragma omp parallel for" + (" simd" if simd and self.maths != LIBM else "")]

    def simd(self, reductions: Sequence[tuple[str, str]] = ()) -> list[str]:
        """The pragma of an inner loop; ``reductions`` are (sum, max or min; variable)."""
        if self.maths == LIBM:
            return []
        signs = {"sum": "+", "max": "max", "min": "min"}
        clauses = "".join(f" reduction({signs[kind]}:{name})" for kind, name in reductions)
        return [f"#pragma omp simd{clauses}"]


def styles(targets: Sequence[Node], *, threads: bool = True) -> list[Style]:
    """The styles that are right for these results."""
    names = {node.op for node in nodes(tuple(targets))}
    maths = [LIBM]
    if not names & _NEED_FAST:
        maths.append(VECTOR)
    if any((LOW.get(name) or OPERATORS.get(name, _NO_OPERATOR)).fast_c for name in names):
        maths.append(FAST)
    return [Style(maths=m, threads=t) for m in maths for t in ((False, True) if threads else (False,))]


def header(style: Style, calls_fexp: bool) -> str:
    """What stands before the functions, fexp where they call it."""
    return (_HEADERS[LIBM] if style.maths == LIBM else _HEADERS[VECTOR]) + (f"\n{FEXP}" if calls_fexp else "")


def loop(variable: str, end: str, body: Sequence[str], *, start: str = "0", step: int = 1) -> list[str]:
    """A counted loop; a body of one line needs no braces."""
    advance = f"{variable}++" if step == 1 else f"{variable} += {step}"
    head = f"for (long {variable} = {start}; {variable} < {end}; {advance})"
    if len(body) == 1:
        return [f"{head} {body[0]}"]
    return [f"{head} {{", *indented(body), "}"]


def indented(lines: Sequence[str]) -> list[str]:
    """One level deeper; pragmas too."""
    return [f"    {line}" for line in lines]


def kernel(
    graph: Graph,
    style: Style,
    schedule: Sequence[tuple[str, int | str]],
    note: str,
    body: Sequence[str],
    *,
    functions: Sequence[str] = (),
    numbers: Sequence[tuple[str, str]] = (),
) -> Kernel:
    """The candidate with one function ``run``.

    Args:
        body: lines of C.
        functions: texts that stand before it.
        numbers: its parameters after the tensors, each as (name, Python text); rows and cols when left out.
    """
    given = tuple(numbers) or (("rows", rows_of(graph)), ("cols", cols_of(graph)))
    declared = ", ".join([parameters(graph), *(f"long {name}" for name, _ in given)])
    text = [text for text in functions if text]
    text += [f'extern "C" void run({declared}) {{', *indented(body), "}"]
    text = [header(style, any("fexp(" in line for line in text)), *text]
    launch = [f"kernel.run({', '.join([arguments(graph), *(value for _, value in given)])})"]
    return Kernel(
        backend="cpp",
        schedule=(*schedule, *style.schedule),
        code=candidate(graph, "cpp", "\n".join(text), launch),
        note=f"{note}; {style.note}",
    )
