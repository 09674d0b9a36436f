"""Two passes in eager. One warp for each row here: it writes the sum into the output row, then reads that row for
mean, variance and result, mostly from the cache. Shuffles combine the lanes."""

import torch

import warpsmith

SOURCE = r"""
__device__ float all(float v) {
    for (int k = 16; k; k /= 2) v += __shfl_xor_sync(~0u, v, k);
    return v;
}
extern "C" __global__ void run(const float* x, const float* s, const float* w, const float* b, float* y, int n) {
    long long o = (long long)blockIdx.x * n;
    float m = 0, q = 0;
    for (int c = threadIdx.x; c < n; c += 32) m += y[o + c] = x[o + c] + s[o + c];
    m = all(m) / n;
    for (int c = threadIdx.x; c < n; c += 32) q += (y[o + c] - m) * (y[o + c] - m);
    q = rsqrtf(all(q) / n + 1e-5f);
    for (int c = threadIdx.x; c < n; c += 32) y[o + c] = (y[o + c] - m) * q * w[c] + b[c];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight, bias):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 32, x, residual, weight, bias, y, x.shape[1])
        return y
