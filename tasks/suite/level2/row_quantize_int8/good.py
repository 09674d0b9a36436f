"""Eager stores absolute values, quotients and rounded quotients. Two sweeps over a row in the L1 cache, largest value
and division; adding and taking away 1.5 * 2^23 rounds halves to even as torch does, without a call, so both
vectorise."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void run(const float* x, signed char* q, float* scale, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        signed char* o = q + r * cols;
        float m = 0;
        #pragma omp simd reduction(max:m)
        for (long c = 0; c < cols; c++) {
            float v = __builtin_fabsf(a[c]);
            m = v > m ? v : m;
        }
        m *= (float)(1. / 127);
        m = m < 1e-8f ? 1e-8f : m;
        scale[r] = m;
        #pragma omp simd
        for (long c = 0; c < cols; c++) o[c] = (int)(a[c] / m + 12582912 - 12582912);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        q, scale = torch.empty_like(x, dtype=torch.int8), x.new_empty(rows, 1)
        kernel.run(x, q, scale, rows, cols)
        return q, scale
