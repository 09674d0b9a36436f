"""Each value is read once and added once, so memory is the bound as long as additions do not wait for one another: four
vector accumulators, which take 64 values a step, keep the adders busy, and reading in order suits the prefetcher."""

import torch

import warpsmith

SOURCE = r"""
typedef float V __attribute__((vector_size(64), aligned(4)));
static float total(const float* a, long n) {
    V s[4] = {};
    float t = 0;
    long c = 0;
    for (; c + 64 <= n; c += 64)
        for (int k = 0; k < 4; k++) s[k] += *(V*)(a + c + 16 * k);
    for (; c < n; c++) t += a[c];
    for (int k = 0; k < 64; k++) t += s[k / 16][k % 16];
    return t;
}

extern "C" void row_mean(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) y[r] = total(x + r * cols, cols) / cols;
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernel.row_mean(x, y, *x.shape)
        return y
