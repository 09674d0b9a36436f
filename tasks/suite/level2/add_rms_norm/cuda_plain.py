"""Seven passes over memory in eager. One block for each row here: a tree in shared memory adds up the squares, then
both inputs are read again for the output. Loads of four bytes leave part of the bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* r, const float* w, float* y, int cols) {
    __shared__ float s[256];
    int t = threadIdx.x;
    long long o = (long long)blockIdx.x * cols;
    s[t] = 0;
    for (int c = t; c < cols; c += 256) {
        float h = x[o + c] + r[o + c];
        s[t] += h * h;
    }
    __syncthreads();
    for (int k = 128; k; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    for (int c = t; c < cols; c += 256)
        y[o + c] = (x[o + c] + r[o + c]) * rsqrtf(s[0] / cols + 1e-6f) * w[c];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 256, x, residual, weight, y, x.shape[1])
        return y
