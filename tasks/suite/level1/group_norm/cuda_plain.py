"""A group lies in one piece and takes one block of 256 threads. Sums of values and of squared distances go through a
tree in shared memory; each value is read three times, partly from the cache, four bytes at a time, with a division
for its channel."""

import torch

import warpsmith

SOURCE = r"""
__device__ float block_sum(float v) {
    __shared__ float part[256];
    part[threadIdx.x] = v;
    for (int k = 128; k; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
    }
    __syncthreads();
    v = part[0];
    __syncthreads();
    return v;
}

extern "C" __global__ void run(const float* x, const float* w, const float* b, float* y, int D, int G, int S) {
    int L = D * S;
    long long o = (long long)blockIdx.x * L;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < L; i += 256) sum += x[o + i];
    float mean = block_sum(sum) / L;
    for (int i = threadIdx.x; i < L; i += 256) square += (x[o + i] - mean) * (x[o + i] - mean);
    float s = rsqrtf(block_sum(square) / L + 1e-5f);
    for (int i = threadIdx.x; i < L; i += 256) {
        int c = blockIdx.x % G * D + i / S;
        y[o + i] = (x[o + i] - mean) * s * w[c] + b[c];
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        y = torch.empty_like(x)
        N, C, H, W = x.shape
        kernels.run(N * 8, 256, x, weight, bias, y, C // 8, 8, H * W)
        return y
