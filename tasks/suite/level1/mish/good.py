"""Three transcendental functions a value in the definition, one in fact: with e = exp(x) and t = e (e + 2), the tanh of
the softplus is t / (t + 2), without cancellation. exp is a polynomial, so the loop vectorises; above 20 the result is
x."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
static inline float fexp(float x) {  // 2^n * 2^f
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    union { float v; int i; } n = {t + 12582912};  // rounds t
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}

extern "C" void mish(const float* x, float* y, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        float e = fexp(x[i] > 20 ? 20 : x[i]), t = e * (e + 2);
        y[i] = x[i] * (t / (t + 2));
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.mish(x, y, x.numel())
        return y
