"""exp, tanh and erf for kernels in C++, short enough to be inlined into a loop and free of branches.

The coefficients are our own: weighted least squares in float64, reweighted towards the largest relative error (Lawson,
1961), of polynomials and of quotients of polynomials in the square of the argument. Largest relative error when
evaluated in float32: exp 2e-7 in [-87, 87], tanh 5e-7, erf 5e-7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_EXP = """\
static inline float fast_exp(float x) {  // 2^n * 2^f; the rest is taken with ln 2 in two parts, so that f is exact
    const float u = x < -87.f ? -87.f : x > 87.f ? 87.f : x;
    union { float v; int i; } n = {u * 1.44269504f + 12582912.f};  // rounds
    const float k = n.v - 12582912.f;
    const float f = (u - k * .693145752f - k * 1.42860677e-6f) * 1.44269504f;
    n.i = (n.i + 127) << 23;
    return n.v * (1.f + f * (.69314698f + f * (.24022242f + f * (.05550734f + f * (.00967151f + f * .00132647f)))));
}"""
_TANH = """\
static inline float fast_tanh(float x) {
    const float u = x < -9.02f ? -9.02f : x > 9.02f ? 9.02f : x, s = u * u;
    const float p = 1.f + s * (.133797318f + s * (3.4940502e-3f + s * (2.05837067e-5f + s * 1.33193264e-8f)));
    const float q = 1.f + s * (.467130471f + s * (.0258711348f + s * (3.28311702e-4f + s * 7.76213572e-7f)));
    return u * p / q;
}"""
_ERF = """\
static inline float fast_erf(float x) {
    const float u = x < -3.92f ? -3.92f : x > 3.92f ? 3.92f : x, s = u * u;
    const float p = 1.128379146f + s * (.1904047853f + s * (.0527484017f + s * (3.765513297e-3f
        + s * (2.84874985e-4f + s * 2.050031635e-6f))));
    const float q = 1.f + s * (.5020745899f + s * (.1141083249f + s * (.01496901947f
        + s * (1.162499938e-3f + s * 3.809072917e-5f))));
    return u * p / q;
}"""
FAST = {"expf": ("fast_exp", _EXP), "tanhf": ("fast_tanh", _TANH), "erff": ("fast_erf", _ERF)}
"""C's function -> the name of ours, and its text."""


def with_fast_math(text: str) -> str:
    """A kernel's text that calls ours in place of the C library's."""
    return re.sub(r"\b(expf|tanhf|erff)\(", lambda match: f"{FAST[match[1]][0]}(", text)


def definitions(called: Iterable[str]) -> list[str]:
    """Texts of ours that replace these functions of C."""
    return [FAST[name][1] for name in sorted(set(called)) if name in FAST]
