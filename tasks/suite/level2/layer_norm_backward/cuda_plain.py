"""A dozen passes in eager. One warp for each row here: a sweep for the mean, one for variance and both sums of the
gradient, one that writes; after the first, rows come from the cache. Shuffles combine the lanes."""

import torch

import warpsmith

SOURCE = r"""
__device__ float all(float v) {
    for (int k = 16; k; k /= 2) v += __shfl_xor_sync(~0u, v, k);
    return v;
}
extern "C" __global__ void run(const float* dy, const float* x, const float* w, float* dx, int n) {
    long long o = (long long)blockIdx.x * n;
    float m = 0, q = 0, s = 0, p = 0;
    for (int c = threadIdx.x; c < n; c += 32) m += x[o + c];
    m = all(m) / n;
    for (int c = threadIdx.x; c < n; c += 32) {
        float u = x[o + c] - m, g = dy[o + c] * w[c];
        q += u * u, s += g, p += g * u;
    }
    float k = rsqrtf(all(q) / n + 1e-5f);
    s = all(s) / n, p = all(p) / n * k * k;
    for (int c = threadIdx.x; c < n; c += 32) dx[o + c] = k * (dy[o + c] * w[c] - s - (x[o + c] - m) * p);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, dy, x, weight):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 32, dy, x, weight, y, x.shape[1])
        return y
