"""One warp for each row: mean, squared distances and the normalised row in three passes, the later two mostly from
the cache, combined by shuffles. Loads of four bytes by one warp a block leave much of the bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
__device__ float warp_sum(float v) {
    for (int k = 16; k; k /= 2) v += __shfl_xor_sync(~0u, v, k);
    return v;
}

extern "C" __global__ void run(const float* x, const float* w, const float* b, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float sum = 0, square = 0;
    for (int c = threadIdx.x; c < cols; c += 32) sum += x[o + c];
    float mean = warp_sum(sum) / cols;
    for (int c = threadIdx.x; c < cols; c += 32) square += (x[o + c] - mean) * (x[o + c] - mean);
    float s = rsqrtf(warp_sum(square) / cols + 1e-5f);
    for (int c = threadIdx.x; c < cols; c += 32) y[o + c] = (x[o + c] - mean) * s * w[c] + b[c];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 32, x, weight, bias, y, x.shape[1])
        return y
