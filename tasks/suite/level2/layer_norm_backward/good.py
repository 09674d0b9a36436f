"""Eager needs a dozen passes and as many temporaries. Per row, three sums are taken in two vectorised sweeps over
data that stays in the L1 cache: the mean first, then variance and both sums of the gradient together; a third sweep
writes."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* dy, const float* x, const float* w, float* dx, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * cols, *d = dy + r * cols;
        float *o = dx + r * cols, m = 0, q = 0, s = 0, p = 0;
        #pragma omp simd reduction(+:m)
        for (long c = 0; c < cols; c++) m += a[c];
        m /= cols;
        #pragma omp simd reduction(+:q,s,p)
        for (long c = 0; c < cols; c++) {
            float u = a[c] - m, g = d[c] * w[c];
            q += u * u;
            s += g;
            p += g * u;
        }
        float k = 1 / sqrtf(q / cols + 1e-5f), e = k * k * p / cols;
        s /= cols;
        #pragma omp simd
        for (long c = 0; c < cols; c++) o[c] = k * (d[c] * w[c] - s - (a[c] - m) * e);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, dy, x, weight):
        y = torch.empty_like(x)
        kernel.run(dy, x, weight, y, *x.shape)
        return y
