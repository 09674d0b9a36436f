"""Eager runs three kernels and stores two temporaries of the full size. Fused, each value is read once and written
once; exp is a branch-free polynomial, so that the loop over a row vectorises with one division for each value."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
static inline float fexp(float x) {  // 2^n * 2^f
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t > 100 ? 100 : t;
    union { float v; int i; } n = {t + 12582912};  // rounds t
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}

extern "C" void run(const float* x, const float* b, const float* g, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        long o = r * cols;
        #pragma omp simd
        for (long c = 0; c < cols; c++) {
            float t = x[o + c] + b[c];
            y[o + c] = t * g[o + c] / (1 + fexp(-t));
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, gate):
        y = torch.empty_like(x)
        kernel.run(x, bias, gate, y, *x.shape)
        return y
