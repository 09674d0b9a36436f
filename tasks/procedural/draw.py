"""Draws operator graphs. The same seed gives the same graph."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tasks.procedural.graph import COL, FULL, LEFT, RIGHT, ROW, TURNED, Graph, Node
from tasks.procedural.operators import (
    BINARY,
    COLUMN_REDUCTIONS,
    OPERATORS,
    ROW_NORMS,
    ROW_REDUCTIONS,
    UNARY,
    Operator,
)

FAMILIES = {
    "elementwise": 6.0,
    "row_reduction": 3.0,
    "row_norm": 4.0,
    "column_reduction": 2.0,
    "scan": 1.0,
    "transpose": 1.0,
    "matmul": 1.0,
}
"""With their weights. Those whose schedules differ little in speed, or that are rare in models, weigh less."""

LARGEST_INPUT = 50 * 6.0
"""Normal numbers lie within 6; the judge multiplies by 50 at most."""
LARGEST = 1e7
"""Results above this are not drawn: float32 has nothing left to be compared with after a few more operators."""

_POSITIVE = frozenset(
    [
        "relu",
        "sigmoid",
        "hardsigmoid",
        "abs",
        "square",
        "sqrt_abs",
        "log1p_abs",
        "exp_neg_abs",
        "bell",
        "relu6",
        "softplus",
        "softmax",
        "row_norm",
        "row_mean_square",
    ]
)
_VANISHING = frozenset({"exp_neg_abs", "bell", "sigmoid", "softplus"})
"""Their minimum is a number too small for float32 to hold exactly, or 0: which of the two is up to the machine."""
_POINTLESS_ON_POSITIVE = frozenset({"relu", "abs", "leaky_relu", "elu"})
# None is a name that the kernels give to a variable of their own.
_NAMES = {
    FULL: (
        ("x", "y", "z"),
        ("a", "b", "d"),
        ("x", "residual", "gate"),
        ("h", "skip", "other"),
        ("input", "other", "third"),
    ),
    COL: (("bias", "scale"), ("gain", "offset"), ("shift", "gamma"), ("beta", "weight")),
    ROW: (("per_row", "row_bias"), ("row_scale", "row_shift"), ("alpha", "delta")),
}


def draw_graph(seed: int, longest: int = 5, family: str | None = None) -> Graph:
    """A graph of at most ``longest`` operators besides what its family is named after.

    Args:
        seed: decides all.
        longest: 1 or more.
        family: one of FAMILIES; drawn by their weights when left out.
    """
    rng = random.Random(f"graph {seed}")
    chosen = family or rng.choices(list(FAMILIES), list(FAMILIES.values()))[0]
    draw = _Draw(rng, longest, {shape: rng.choice(names) for shape, names in _NAMES.items()})
    outputs = _FAMILY_DRAWS[chosen](draw)
    forward = [node for node in draw.inputs if node.name not in draw.parameters]
    rest = [node for node in draw.inputs if node.name in draw.parameters]
    flat = outputs[-1].op in ROW_REDUCTIONS and rng.random() < 0.5
    return Graph(
        family=chosen,
        outputs=outputs,
        inputs=(*forward, *rest),
        parameters=frozenset(draw.parameters),
        flat=flat,
    )


@dataclass
class _Draw:
    """What has been drawn so far."""

    rng: random.Random
    left: int
    names: dict[str, tuple[str, ...]]
    inputs: list[Node] = field(default_factory=list)
    parameters: set[str] = field(default_factory=set)

    def input(self, shape: str, *, parameter: bool = False) -> Node:
        bound = 6.0 if parameter else LARGEST_INPUT
        node = Node(op="input", shape=shape, name=self.names[_kind(shape)][self._taken(shape)], bound=bound)
        self.inputs.append(node)
        if parameter:
            self.parameters.add(node.name)
        return node

    def room(self, shape: str) -> bool:
        return self._taken(shape) < len(self.names[_kind(shape)])

    def _taken(self, shape: str) -> int:
        return sum(_kind(node.shape) == _kind(shape) for node in self.inputs)

    def steps(self, most: int) -> int:
        """How many operators to put here: at most ``most``, and what is left of the budget."""
        number = self.rng.randint(0, min(most, self.left))
        self.left -= number
        return number

    def chain(self, node: Node, steps: int, *, others: bool = True) -> Node:
        for _ in range(steps):
            node = self.step(node, others=others)
        return node

    def step(self, node: Node, *, others: bool) -> Node:
        """One more operator on a node."""
        if others and node.shape == FULL and self.rng.random() < 0.35:
            return self._joined(node)
        for _ in range(50):
            name = self.rng.choice(list(UNARY))
            made = apply(name, (node,), self.rng.choice(UNARY[name].numbers or (0.0,)))
            if made is not None and not _is_pointless(name, node):
                return made
        return apply("clamp", (node,), 2.0) or node

    def _joined(self, node: Node) -> Node:
        for _ in range(20):
            kind = self.rng.choice([FULL, COL, COL, ROW, "itself"])
            if kind == "itself":
                other = self.step(node, others=False)
                made = apply("mul", (node, other))
            elif not self.room(kind):
                continue
            else:
                parameter = kind == COL and self.rng.random() < 0.5
                bound = 6.0 if parameter else LARGEST_INPUT
                trial = Node(op="input", shape=kind, bound=bound)
                name = self.rng.choices(list(BINARY), [4, 2, 4, 1, 1])[0]
                if apply(name, (node, trial)) is None:
                    continue
                other = self.input(kind, parameter=parameter)
                made = apply(name, (node, other))
            if made is not None:
                return made
        return self.step(node, others=False)


def _kind(shape: str) -> str:
    return FULL if shape in (LEFT, RIGHT) else shape


def apply(name: str, args: tuple[Node, ...], number: float = 0.0) -> Node | None:
    """The operator's result, or None where rounding would decide its value."""
    operator = OPERATORS[name]
    bounds = [argument.bound for argument in args]
    if max(bounds) > operator.needs:
        return None
    bound = _joined_bound(name, bounds) if len(args) > 1 else operator.bound(bounds[0], number)
    if bound > LARGEST:
        return None
    return Node(op=name, shape=_shape(name, operator, args), args=args, number=number, bound=bound)


def _shape(name: str, operator: Operator, args: tuple[Node, ...]) -> str:
    if name in ROW_REDUCTIONS:
        return ROW
    if name in COLUMN_REDUCTIONS:
        return COL
    if name == "matmul":
        return FULL
    if name == "transpose":
        return TURNED
    return args[0].shape if len({argument.shape for argument in args}) == 1 else FULL


def _joined_bound(name: str, bounds: list[float]) -> float:
    if name in ("mul", "matmul"):
        return bounds[0] * bounds[1] * (64 if name == "matmul" else 1)
    return max(bounds) if name in ("maximum", "minimum") else sum(bounds)


def _is_pointless(name: str, node: Node) -> bool:
    if name == node.op and name not in ("square", "shift", "scale"):
        return True
    if node.op in _POSITIVE and name in _POINTLESS_ON_POSITIVE:
        return True
    return {name, node.op} <= {"abs", "square", "neg", "sqrt_abs", "log1p_abs"} and name in ("abs", "neg")


def _elementwise(draw: _Draw) -> tuple[Node, ...]:
    steps = draw.rng.randint(1, draw.left)
    middle = draw.chain(draw.input(FULL), max(1, steps - 1))
    last = draw.step(middle, others=True) if steps > 1 else middle
    return (middle, last) if steps > 2 and draw.rng.random() < 0.1 else (last,)


def _row_reduction(draw: _Draw) -> tuple[Node, ...]:
    before = draw.chain(draw.input(FULL), draw.steps(3))
    reduced = _reduced(draw, before, list(ROW_REDUCTIONS))
    if draw.left and draw.rng.random() < 0.3:
        draw.left -= 1
        name = draw.rng.choice(["add", "sub", "maximum", "minimum"])
        back = apply(name, (before, reduced))
        if back is not None:
            return (draw.chain(back, draw.steps(2)),)
    return (draw.chain(reduced, draw.steps(2), others=False),)


def _row_norm(draw: _Draw) -> tuple[Node, ...]:
    before = draw.chain(draw.input(FULL), draw.steps(3))
    normed = _reduced(draw, before, list(ROW_NORMS))
    after = draw.chain(normed, draw.steps(3))
    if draw.left and draw.rng.random() < 0.15:
        return (_reduced(draw, after, list(ROW_REDUCTIONS)),)
    return (after,)


def _column_reduction(draw: _Draw) -> tuple[Node, ...]:
    before = draw.chain(draw.input(FULL), draw.steps(3))
    reduced = _reduced(draw, before, list(COLUMN_REDUCTIONS))
    return (draw.chain(reduced, draw.steps(2), others=False),)


def _scan(draw: _Draw) -> tuple[Node, ...]:
    before = draw.chain(draw.input(FULL), draw.steps(2))
    summed = _reduced(draw, before, ["cumsum"])
    return (draw.chain(summed, draw.steps(2), others=False),)


def _transpose(draw: _Draw) -> tuple[Node, ...]:
    before = draw.chain(draw.input(FULL), draw.steps(3))
    turned = _reduced(draw, before, ["transpose"])
    return (draw.chain(turned, draw.steps(2), others=False),)


def _matmul(draw: _Draw) -> tuple[Node, ...]:
    before = draw.chain(draw.input(LEFT), draw.steps(1), others=False)
    right = draw.input(RIGHT)
    product = apply("matmul", (before, right)) or apply("matmul", (_tamed(before), right))
    assert product is not None, "a clamped operand is small enough"
    return (draw.chain(product, draw.steps(3)),)


def _reduced(draw: _Draw, node: Node, choices: list[str]) -> Node:
    name = draw.rng.choice(choices)
    if node.op in _VANISHING and name.endswith("_min"):
        name = name.replace("_min", "_max")
    made = apply(name, (node,))
    return made or _reduced(draw, _tamed(node), choices)


def _tamed(node: Node) -> Node:
    tamed = apply("clamp", (node,), 3.0)
    return tamed or Node(op="clamp", shape=node.shape, args=(node,), number=3.0, bound=3.0)


_FAMILY_DRAWS = {
    "elementwise": _elementwise,
    "row_reduction": _row_reduction,
    "row_norm": _row_norm,
    "column_reduction": _column_reduction,
    "scan": _scan,
    "transpose": _transpose,
    "matmul": _matmul,
}
