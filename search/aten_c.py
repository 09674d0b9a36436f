"""Pointwise operations of ATen as C expressions in float32.

A rule takes the texts of its arguments (variables or numbers) and gives an expression. Comparisons propagate NaN as
PyTorch does: ``x < 0 ? 0 : x`` keeps it, where fmaxf would not.
"""

from __future__ import annotations

from collections.abc import Callable

Rule = Callable[..., str]

EXPENSIVE = frozenset(
    {"expf", "logf", "log1pf", "expm1f", "tanhf", "erff", "sinf", "cosf", "powf", "log2f", "atanf", "sinhf", "coshf"}
)
"""C functions that cost more than reading a number again; glibc has all of them as vector code (libmvec, 2.35)."""


def _gelu(x: str, approximate: str = "none") -> str:
    if approximate == "tanh":
        return f"0.5f * {x} * (1.f + tanhf(0.7978845608f * ({x} + 0.044715f * {x} * {x} * {x})))"
    return f"0.5f * {x} * (1.f + erff({x} * 0.7071067812f))"


def _power(x: str, n: str) -> str:
    value = _number(n)
    if value in (1.0, 2.0, 3.0, 4.0):
        return " * ".join([x] * int(value or 1))
    known = {0.5: f"sqrtf({x})", -0.5: f"1.f / sqrtf({x})", -1.0: f"1.f / {x}", -2.0: f"1.f / ({x} * {x})"}
    return known.get(value or 0.0, f"powf({x}, {n})")


def _number(text: str) -> float | None:
    try:
        return float(text.removesuffix("f").strip("()"))
    except ValueError:
        return None


def _times(x: str, factor: str) -> str:
    return x if factor in ("1.f", "1") else f"{factor} * {x}"


def _clamp(x: str, low: str = "", high: str = "") -> str:
    text = f"({x} < {low} ? {low} : {x})" if low else x
    if high:
        # The inner text is short; the compiler evaluates it once.
        text = f"({text} > {high} ? {high} : {text})"
    return text


def _softplus(x: str, beta: str = "1.f", threshold: str = "20.f") -> str:
    scaled = _times(x, beta)
    soft = f"log1pf(expf({scaled}))" + ("" if beta in ("1.f", "1") else f" / {beta}")
    return f"{scaled} > {threshold} ? {x} : {soft}"


def _elu(x: str, alpha: str = "1.f", scale: str = "1.f", input_scale: str = "1.f") -> str:
    bent = _times(_times(f"expm1f({_times(x, input_scale)})", alpha), scale)
    return f"{x} > 0.f ? {_times(x, scale)} : {bent}"


POINTWISE: dict[str, Rule] = {
    "add": lambda a, b, alpha="1.f": f"{a} + {_times(b, alpha)}",
    "sub": lambda a, b, alpha="1.f": f"{a} - {_times(b, alpha)}",
    "rsub": lambda a, b, alpha="1.f": f"{b} - {_times(a, alpha)}",
    "mul": lambda a, b: f"{a} * {b}",
    "div": lambda a, b: f"{a} / {b}",
    "neg": lambda x: f"-{x}",
    "abs": lambda x: f"fabsf({x})",
    "clone": lambda x: x,
    "relu": lambda x: f"{x} < 0.f ? 0.f : {x}",
    "relu6": lambda x: _clamp(x, "0.f", "6.f"),
    "sigmoid": lambda x: f"1.f / (1.f + expf(-{x}))",
    "tanh": lambda x: f"tanhf({x})",
    "silu": lambda x: f"{x} / (1.f + expf(-{x}))",
    "mish": lambda x: f"{x} * tanhf({x} > 20.f ? {x} : log1pf(expf({x})))",
    "gelu": _gelu,
    "leaky_relu": lambda x, slope="0.01f": f"{x} > 0.f ? {x} : {slope} * {x}",
    "elu": _elu,
    "softplus": _softplus,
    "hardswish": lambda x: f"{x} * {_clamp(f'({x} + 3.f)', '0.f', '6.f')} / 6.f",
    "hardsigmoid": lambda x: f"{_clamp(f'({x} + 3.f)', '0.f', '6.f')} / 6.f",
    "hardtanh": lambda x, low="-1.f", high="1.f": _clamp(x, low, high),
    "clamp": _clamp,
    "clamp_min": lambda x, low: _clamp(x, low),
    "clamp_max": lambda x, high: _clamp(x, "", high),
    "exp": lambda x: f"expf({x})",
    "expm1": lambda x: f"expm1f({x})",
    "log": lambda x: f"logf({x})",
    "log1p": lambda x: f"log1pf({x})",
    "log2": lambda x: f"log2f({x})",
    "sqrt": lambda x: f"sqrtf({x})",
    "rsqrt": lambda x: f"1.f / sqrtf({x})",
    "reciprocal": lambda x: f"1.f / {x}",
    "square": lambda x: f"{x} * {x}",
    "pow": _power,
    "sin": lambda x: f"sinf({x})",
    "cos": lambda x: f"cosf({x})",
    "atan": lambda x: f"atanf({x})",
    "sinh": lambda x: f"sinhf({x})",
    "cosh": lambda x: f"coshf({x})",
    "erf": lambda x: f"erff({x})",
    "sign": lambda x: f"(float)(({x} > 0.f) - ({x} < 0.f))",
    "floor": lambda x: f"floorf({x})",
    "ceil": lambda x: f"ceilf({x})",
    "round": lambda x: f"nearbyintf({x})",
    "maximum": lambda a, b: f"{a} < {b} ? {b} : {a}",
    "minimum": lambda a, b: f"{a} > {b} ? {b} : {a}",
    "threshold": lambda x, at, value: f"{x} <= {at} ? {value} : {x}",
    "hardshrink": lambda x, at="0.5f": f"fabsf({x}) <= {at} ? 0.f : {x}",
    "softshrink": lambda x, at="0.5f": f"{x} > {at} ? {x} - {at} : {x} < -{at} ? {x} + {at} : 0.f",
    "addcmul": lambda a, b, c, value="1.f": f"{a} + {_times(b, value)} * {c}",
    "addcdiv": lambda a, b, c, value="1.f": f"{a} + {_times(b, value)} / {c}",
    "lerp": lambda a, b, weight: f"{a} + {weight} * ({b} - {a})",
    "where": lambda condition, a, b: f"{condition} ? {a} : {b}",
    "masked_fill": lambda x, mask, value: f"{mask} ? {value} : {x}",
    "gt": lambda a, b: f"{a} > {b}",
    "lt": lambda a, b: f"{a} < {b}",
    "ge": lambda a, b: f"{a} >= {b}",
    "le": lambda a, b: f"{a} <= {b}",
    "eq": lambda a, b: f"{a} == {b}",
    "ne": lambda a, b: f"{a} != {b}",
    "logical_not": lambda a: f"!{a}",
    "logical_and": lambda a, b: f"{a} && {b}",
    "logical_or": lambda a, b: f"{a} || {b}",
    "_prelu_kernel": lambda x, w: f"{x} > 0.f ? {x} : {w} * {x}",
}
"""By the name of ATen's operation, without overload."""

REDUCTIONS = {"sum": "0.f", "max": "-INFINITY", "min": "INFINITY"}
"""With what an accumulator starts."""


def literal(value: float) -> str:
    """A float32 literal; negative ones in brackets."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(float(value))
    text = (text.removesuffix("0") if text.endswith(".0") else text) + "f"
    return f"({text})" if value < 0 else text


def is_expensive(expression: str) -> bool:
    """Whether an expression calls one of EXPENSIVE."""
    return any(f"{name}(" in expression for name in EXPENSIVE)
