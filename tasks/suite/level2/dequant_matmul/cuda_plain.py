"""Eager writes the weights as floats before it multiplies. One warp for each token and unit here reads bytes and
widens them in registers; shuffles combine the lanes. Weights are read again for every token, and loads of one byte
waste the pipeline."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const signed char* w, const float* scale, float* y, int K, int N) {
    int n = blockIdx.x, r = blockIdx.y;
    float s = 0;
    for (int k = threadIdx.x; k < K; k += 32) s += x[r * K + k] * w[(long long)n * K + k];
    for (int l = 16; l; l /= 2) s += __shfl_xor_sync(~0u, s, l);
    if (threadIdx.x == 0) y[r * N + n] = s * scale[n];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, scale):
        (R, K), N = x.shape, weight.shape[0]
        y = x.new_empty(R, N)
        kernels.run((N, R), 32, x, weight, scale, y, K, N)
        return y
