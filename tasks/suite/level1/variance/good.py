"""Eager updates mean and variance value by value, with divisions. Two sums over a row that stays in the L1 cache, the
mean and then the squared distances from it, are exact too; four vector accumulators hide the latency of the
additions."""

import torch

import warpsmith

SOURCE = r"""
typedef float V __attribute__((vector_size(64), aligned(4)));
template <class F> static float total(const float* a, long n, F f) {
    V s[4] = {};
    float t = 0;
    long c = 0;
    for (; c + 64 <= n; c += 64)
        for (int k = 0; k < 4; k++) s[k] += f(*(V*)(a + c + 16 * k));
    for (; c < n; c++) t += f(a[c]);
    for (int k = 0; k < 64; k++) t += s[k / 16][k % 16];
    return t;
}

extern "C" void variance(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float mean = total(a, cols, [](auto v) { return v; }) / cols;
        y[r] = total(a, cols, [=](auto v) { return (v - mean) * (v - mean); }) / (cols - 1);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernel.variance(x, y, *x.shape)
        return y
