"""One thread for each value adds up five taps and checks each against the ends of the row. The cache serves four of
the five loads, but there are ten loads for each store, and a division for the row."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void conv(const float* x, const float* w, float* y, long long n, int C, int T) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int t = i % T, c = i / T % C;
    float sum = 0;
    for (int k = 0; k < 5; k++)
        if (t + k >= 2 && t + k - 2 < T) sum += w[c * 5 + k] * x[i + k - 2];
    y[i] = sum;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        N, C, T = x.shape
        kernels.conv((N * C * T + 255) // 256, 256, x, weight, y, N * C * T, C, T)
        return y
