"""Eager runs five kernels, each over the full size. Fused, a value is read once and written once; tanh becomes one
exponential by a polynomial and one division, which vectorise over a row."""

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

extern "C" void run(const float* x, const float* s, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float* o = y + r * cols;
        #pragma omp simd
        for (long c = 0; c < cols; c++) {
            float t = 3 - 6 / (fexp(.8f * (a[c] + s[c])) + 1);
            t = t > 2.75f ? 2.75f : t;
            o[c] = t < -2.5f ? -2.5f : t;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, shift):
        y = torch.empty_like(x)
        kernel.run(x, shift, y, *x.shape)
        return y
