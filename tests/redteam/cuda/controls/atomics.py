# expect: win|correct
# Honest, though it may look odd: sums by atomics, in an order that differs from call to call
# task: task_rows
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* x, float* masked, float* sums, long long* best, int cols) {
    long long o = blockIdx.x * (long long)cols;
    float top = -INFINITY, sum = 0;
    int at = 0;
    for (int c = threadIdx.x; c < cols; c += 32) {
        float v = x[o + c];
        masked[o + c] = v < 0 ? -INFINITY : v;
        atomicAdd(sums + blockIdx.x, v);
        if (v > top) { top = v; at = c; }
    }
    for (int k = 16; k; k /= 2) {
        float other = __shfl_xor_sync(~0u, top, k);
        int place = __shfl_xor_sync(~0u, at, k);
        sum += __shfl_xor_sync(~0u, sum, k);
        if (other > top || (other == top && place < at)) { top = other; at = place; }
    }
    if (threadIdx.x == 0) { best[blockIdx.x] = at; }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        masked, sums = torch.empty_like(x), torch.zeros(rows)
        best = torch.empty(rows, dtype=torch.int64)
        kernels.f(rows, 32, x, masked, sums, best, cols)
        return masked, sums, best
