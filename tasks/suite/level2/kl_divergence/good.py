"""Eager writes both log-softmaxes and three more temporaries. Two sweeps over rows in the L1 cache suffice: both
maxima, then the sums of exp(a), exp(b) and exp(b) (b - a) together; logarithms are needed once a row."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#pragma GCC optimize("no-trapping-math")
static inline float fexp(float x) {
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    union { float v; int i; } n = {t + 12582912};
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}

extern "C" void run(const float* x, const float* z, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * cols, *b = z + r * cols;
        float m = a[0], n = b[0], s = 0, t = 0, d = 0;
        #pragma omp simd reduction(max:m,n)
        for (long c = 0; c < cols; c++) m = a[c] > m ? a[c] : m, n = b[c] > n ? b[c] : n;
        #pragma omp simd reduction(+:s,t,d)
        for (long c = 0; c < cols; c++) {
            float u = a[c] - m, v = b[c] - n, e = fexp(v);
            s += fexp(u);
            t += e;
            d += e * (v - u);
        }
        y[r] = d / t + logf(s) - logf(t);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, student, teacher):
        y = student.new_empty(student.shape[0])
        kernel.run(student, teacher, y, *student.shape)
        return y
