"""Eager stores five temporaries. One thread block of a single warp for each row here: both maxima, then three sums,
each combined by shuffles. Rows are read twice, the second time mostly from the cache."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* a, const float* b, float* y, int cols) {
    a += (long long)blockIdx.x * cols;
    b += (long long)blockIdx.x * cols;
    float m = a[0], n = b[0], s = 0, t = 0, d = 0;
    for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, a[c]), n = fmaxf(n, b[c]);
    for (int k = 16; k; k /= 2) {
        m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
        n = fmaxf(n, __shfl_xor_sync(~0u, n, k));
    }
    for (int c = threadIdx.x; c < cols; c += 32) {
        float u = a[c] - m, v = b[c] - n, e = expf(v);
        s += expf(u), t += e, d += e * (v - u);
    }
    for (int k = 16; k; k /= 2) {
        s += __shfl_xor_sync(~0u, s, k);
        t += __shfl_xor_sync(~0u, t, k);
        d += __shfl_xor_sync(~0u, d, k);
    }
    if (threadIdx.x == 0) y[blockIdx.x] = d / t + logf(s) - logf(t);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, student, teacher):
        y = student.new_empty(student.shape[0])
        kernels.run(student.shape[0], 32, student, teacher, y, student.shape[1])
        return y
