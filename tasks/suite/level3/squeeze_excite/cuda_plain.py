"""Two passes over the feature map are the bound. A warp for each channel adds it up; the two tiny layers run in
torch; a thread for each value then scales it. Loads of four bytes leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void mean(const float* x, float* m, int L) {
    float s = 0;
    for (int l = threadIdx.x; l < L; l += 32) s += x[(long long)blockIdx.x * L + l];
    for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k);
    if (threadIdx.x == 0) m[blockIdx.x] = s / L;
}
extern "C" __global__ void scale(const float* x, const float* g, float* y, long long n, int L) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n) y[i] = x[i] * g[i / L];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.down = torch.nn.Linear(channels, hidden)
        self.up = torch.nn.Linear(hidden, channels)

    def forward(self, x):
        y, m, (N, C, L) = torch.empty_like(x), x.new_empty(x.shape[:2]), x.shape
        kernels.mean(N * C, 32, x, m, L)
        gate = torch.sigmoid(self.up(torch.relu(self.down(m))))
        kernels.scale((x.numel() + 255) // 256, 256, x, gate, y, x.numel(), L)
        return y
