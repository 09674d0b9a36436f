"""The operators: their PyTorch text in several styles, their text in C, and how large their results get.

In texts ``{0}`` and ``{1}`` are arguments and ``{n}`` is the operator's constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of the tasks."""

    torch: tuple[str, ...]
    """Equivalent texts. One that starts with "{0}" and an operator sign, or a minus, is infix."""
    c: str = ""
    """For elementwise ones: an expression in float32, the same in CUDA and C++."""
    bound: Callable[[float, float], float] = lambda a, n: a
    """Largest magnitude of the result, from the argument's and the constant."""
    needs: float = 1e6
    """Arguments may be this large: beyond, rounding would decide the result."""
    numbers: tuple[float, ...] = ()
    """Constants to draw from."""
    fast_c: str = ""
    """For C++: a text without branches, and with fexp in place of expf, of which compilers make vector code. Precise
    where the result is near zero too: error is measured against the size of what is there."""


def _one(a: float, n: float) -> float:
    return 1.0


UNARY: dict[str, Operator] = {
    "relu": Operator(torch=("torch.relu({0})", "F.relu({0})", "{0}.relu()", "{0}.clamp(min=0)"), c="fmaxf({0}, 0.f)"),
    "sigmoid": Operator(
        torch=("torch.sigmoid({0})", "{0}.sigmoid()", "F.sigmoid({0})"),
        c="1.f / (1.f + expf(-{0}))",
        fast_c="1.f / (1.f + fexp(-{0}))",
        bound=_one,
    ),
    "tanh": Operator(
        torch=("torch.tanh({0})", "{0}.tanh()"),
        c="tanhf({0})",
        bound=_one,
    ),
    "silu": Operator(
        torch=("F.silu({0})", "torch.nn.functional.silu({0})"),
        c="{0} / (1.f + expf(-{0}))",
        fast_c="{0} / (1.f + fexp(-{0}))",
    ),
    "gelu": Operator(torch=("F.gelu({0})",), c="0.5f * {0} * (1.f + erff({0} * 0.70710678f))"),
    "gelu_tanh": Operator(
        torch=('F.gelu({0}, approximate="tanh")',),
        c="0.5f * {0} * (1.f + tanhf(0.79788456f * ({0} + 0.044715f * {0} * {0} * {0})))",
        fast_c="{0} - {0} / (1.f + fexp(1.59576912f * ({0} + 0.044715f * {0} * {0} * {0})))",
        needs=1e4,
    ),
    "leaky_relu": Operator(
        torch=("F.leaky_relu({0}, {n})", "torch.where({0} > 0, {0}, {n} * {0})"),
        c="{0} > 0.f ? {0} : {n} * {0}",
        fast_c="fmaxf({0}, {n} * {0})",
        numbers=(0.01, 0.1, 0.2, 0.3),
    ),
    "elu": Operator(
        torch=("F.elu({0})",),
        c="{0} > 0.f ? {0} : expm1f({0})",
        fast_c="fmaxf({0}, 0.f) + expm1f(fminf({0}, 0.f))",
    ),
    "softplus": Operator(
        torch=("F.softplus({0})",),
        c="{0} > 20.f ? {0} : log1pf(expf({0}))",
        fast_c="fmaxf({0}, 0.f) + log1pf(fexp(-fabsf({0})))",
        bound=lambda a, n: a + 1,
    ),
    "hardswish": Operator(torch=("F.hardswish({0})",), c="{0} * fminf(fmaxf({0} + 3.f, 0.f), 6.f) / 6.f"),
    "hardsigmoid": Operator(torch=("F.hardsigmoid({0})",), c="fminf(fmaxf({0} + 3.f, 0.f), 6.f) / 6.f", bound=_one),
    "clamp": Operator(
        torch=("torch.clamp({0}, -{n}, {n})", "{0}.clamp(-{n}, {n})", "F.hardtanh({0}, -{n}, {n})"),
        c="fminf(fmaxf({0}, -{n}), {n})",
        bound=lambda a, n: n,
        numbers=(1.0, 1.5, 2.0, 3.0),
    ),
    "abs": Operator(torch=("torch.abs({0})", "{0}.abs()"), c="fabsf({0})"),
    "square": Operator(
        torch=("torch.square({0})", "{0}.square()", "{0} ** 2", "{0} * {0}"), c="{0} * {0}", bound=lambda a, n: a * a
    ),
    "neg": Operator(torch=("-{0}", "torch.neg({0})", "{0}.neg()"), c="-{0}"),
    "sqrt_abs": Operator(
        torch=("torch.sqrt({0}.abs())", "{0}.abs().sqrt()"), c="sqrtf(fabsf({0}))", bound=lambda a, n: a**0.5
    ),
    "log1p_abs": Operator(
        torch=("torch.log1p({0}.abs())", "{0}.abs().log1p()"), c="log1pf(fabsf({0}))", bound=lambda a, n: 15.0
    ),
    "exp_neg_abs": Operator(
        torch=("torch.exp(-{0}.abs())", "(-{0}.abs()).exp()"),
        c="expf(-fabsf({0}))",
        fast_c="fexp(-fabsf({0}))",
        bound=_one,
        needs=1e4,
    ),
    "sin": Operator(torch=("torch.sin({0})", "{0}.sin()"), c="sinf({0})", bound=_one, needs=400.0),
    "cos": Operator(torch=("torch.cos({0})", "{0}.cos()"), c="cosf({0})", bound=_one, needs=400.0),
    "softsign": Operator(torch=("F.softsign({0})", "{0} / (1 + {0}.abs())"), c="{0} / (1.f + fabsf({0}))", bound=_one),
    "bell": Operator(
        torch=("1 / (1 + {0} * {0})", "torch.reciprocal(1 + {0}.square())"), c="1.f / (1.f + {0} * {0})", bound=_one
    ),
    "relu6": Operator(
        torch=("F.relu6({0})", "{0}.clamp(0, 6)"), c="fminf(fmaxf({0}, 0.f), 6.f)", bound=lambda a, n: 6.0
    ),
    "mish": Operator(
        torch=("F.mish({0})",),
        c="{0} * tanhf({0} > 20.f ? {0} : log1pf(expf({0})))",
        fast_c="{0} * tanhf(fmaxf({0}, 0.f) + log1pf(fexp(-fabsf({0}))))",
    ),
    "scale": Operator(
        torch=("{0} * {n}", "{n} * {0}", "torch.mul({0}, {n})"),
        c="{0} * {n}",
        bound=lambda a, n: a * abs(n),
        numbers=(0.5, 0.25, 1.5, 2.0, -0.7, 0.125),
    ),
    "shift": Operator(
        torch=("{0} + {n}", "{n} + {0}", "torch.add({0}, {n})"),
        c="{0} + {n}",
        bound=lambda a, n: a + abs(n),
        numbers=(1.0, 0.5, 0.1, 2.0),
    ),
}

BINARY: dict[str, Operator] = {
    "add": Operator(torch=("{0} + {1}", "torch.add({0}, {1})"), c="{0} + {1}"),
    "sub": Operator(torch=("{0} - {1}", "torch.sub({0}, {1})"), c="{0} - {1}"),
    "mul": Operator(torch=("{0} * {1}", "torch.mul({0}, {1})"), c="{0} * {1}"),
    "maximum": Operator(torch=("torch.maximum({0}, {1})",), c="fmaxf({0}, {1})"),
    "minimum": Operator(torch=("torch.minimum({0}, {1})",), c="fminf({0}, {1})"),
}

ROW_REDUCTIONS: dict[str, Operator] = {
    "row_sum": Operator(torch=("{0}.sum(dim={d}, keepdim=True)", "torch.sum({0}, dim={d}, keepdim=True)")),
    "row_mean": Operator(torch=("{0}.mean(dim={d}, keepdim=True)", "torch.mean({0}, dim={d}, keepdim=True)")),
    "row_max": Operator(torch=("{0}.amax(dim={d}, keepdim=True)", "torch.amax({0}, dim={d}, keepdim=True)")),
    "row_min": Operator(torch=("{0}.amin(dim={d}, keepdim=True)", "torch.amin({0}, dim={d}, keepdim=True)")),
    "row_norm": Operator(torch=("{0}.norm(dim={d}, keepdim=True)",), bound=lambda a, n: a * 100),
    "row_mean_square": Operator(
        torch=("{0}.square().mean(dim={d}, keepdim=True)", "torch.mean({0} * {0}, dim={d}, keepdim=True)"),
        bound=lambda a, n: a * a,
    ),
    "row_logsumexp": Operator(
        torch=("torch.logsumexp({0}, dim={d}, keepdim=True)", "{0}.logsumexp(dim={d}, keepdim=True)"),
        bound=lambda a, n: a + 12,
        needs=1e3,
    ),
}

ROW_NORMS: dict[str, Operator] = {
    "softmax": Operator(
        torch=("torch.softmax({0}, dim={d})", "{0}.softmax(dim={d})", "F.softmax({0}, dim={d})"), bound=_one, needs=1e3
    ),
    "log_softmax": Operator(
        torch=("torch.log_softmax({0}, dim={d})", "F.log_softmax({0}, dim={d})"),
        bound=lambda a, n: 2 * a + 12,
        needs=1e3,
    ),
    "layer_norm": Operator(torch=("F.layer_norm({0}, ({0}.shape[-1],))",), bound=lambda a, n: 100.0, needs=1e5),
    "rms_norm": Operator(
        torch=(
            "{0} * torch.rsqrt({0}.square().mean(dim={d}, keepdim=True) + 1e-5)",
            "F.rms_norm({0}, ({0}.shape[-1],), eps=1e-5)",
        ),
        bound=lambda a, n: 100.0,
        needs=1e5,
    ),
    "l2_normalize": Operator(torch=("F.normalize({0}, dim={d})",), bound=_one, needs=1e5),
    "center": Operator(torch=("{0} - {0}.mean(dim={d}, keepdim=True)",), bound=lambda a, n: 2 * a, needs=1e5),
}

COLUMN_REDUCTIONS: dict[str, Operator] = {
    "column_sum": Operator(torch=("{0}.sum(dim=0)", "torch.sum({0}, dim=0)", "{0}.sum(0)"), needs=1e3),
    "column_mean": Operator(torch=("{0}.mean(dim=0)", "torch.mean({0}, dim=0)", "{0}.mean(0)"), needs=1e4),
    "column_max": Operator(torch=("{0}.amax(dim=0)", "torch.amax({0}, dim=0)")),
    "column_min": Operator(torch=("{0}.amin(dim=0)", "torch.amin({0}, dim=0)")),
}

ARRANGEMENTS: dict[str, Operator] = {
    "cumsum": Operator(
        torch=("torch.cumsum({0}, dim={d})", "{0}.cumsum(dim={d})"), needs=1e3, bound=lambda a, n: 1e3 * a
    ),
    "transpose": Operator(torch=("{0}.t().contiguous()", "{0}.transpose(0, 1).contiguous()", "{0}.T.contiguous()")),
    "matmul": Operator(torch=("{0} @ {1}", "torch.matmul({0}, {1})", "torch.mm({0}, {1})"), needs=1e3),
}

OPERATORS: dict[str, Operator] = {
    **UNARY,
    **BINARY,
    **ROW_REDUCTIONS,
    **ROW_NORMS,
    **COLUMN_REDUCTIONS,
    **ARRANGEMENTS,
}

LOW: dict[str, Operator] = {
    "exp": Operator(torch=(), c="expf({0})", fast_c="fexp({0})"),
    "log": Operator(torch=(), c="logf({0})"),
    "sqrt": Operator(torch=(), c="sqrtf({0})"),
    "rsqrt": Operator(torch=(), c="1.f / sqrtf({0})"),
    "div": Operator(torch=(), c="{0} / {1}"),
    "over_cols": Operator(torch=(), c="{0} / cols"),
    "floor_at": Operator(torch=(), c="fmaxf({0}, {n})"),
}
"""What row operators are lowered to, beside the elementwise ones and the reductions sum, max and min."""
