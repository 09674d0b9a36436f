"""Each value of the matrix is used once, so reading it is the bound; the vector stays in the L1 cache. Four vector
accumulators, 64 values a step, hide the latency of multiply-adds, and rows are read in order, which suits the
prefetcher."""

import torch

import warpsmith

SOURCE = r"""
typedef float V __attribute__((vector_size(64), aligned(4)));
extern "C" void matvec(const float* a, const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* p = a + r * cols;
        V s[4] = {};
        float t = 0;
        long c = 0;
        for (; c + 64 <= cols; c += 64)
            for (int k = 0; k < 4; k++) s[k] += *(V*)(p + c + 16 * k) * *(V*)(x + c + 16 * k);
        for (; c < cols; c++) t += p[c] * x[c];
        for (int k = 0; k < 64; k++) t += s[k / 16][k % 16];
        y[r] = t;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, x):
        y = x.new_empty(len(a))
        kernel.matvec(a, x, y, *a.shape)
        return y
