"""Eager runs every expert on every token. One block for each token here keeps the hidden layer in shared memory;
neighbouring threads read neighbouring weights of the token's expert, but weights are read again for every token."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void experts(const float* x, const long long* chosen, const float* share, const float* up,
                                   const float* down, float* y, int D, int H) {
    extern __shared__ float h[];
    long long t = blockIdx.x, e = chosen[t] * D * H;
    for (int k = threadIdx.x; k < H; k += 256) {
        float s = 0;
        for (int d = 0; d < D; d++) s += x[t * D + d] * up[e + d * H + k];
        h[k] = fmaxf(s, 0);
    }
    __syncthreads();
    for (int d = threadIdx.x; d < D; d += 256) {
        float s = 0;
        for (int k = 0; k < H; k++) s += h[k] * down[e + k * D + d];
        y[t * D + d] = s * share[t];
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, experts, dim, hidden):
        super().__init__()
        self.gate = torch.nn.Linear(dim, experts)
        self.up = torch.nn.Parameter(torch.randn(experts, dim, hidden) / dim**0.5)
        self.down = torch.nn.Parameter(torch.randn(experts, hidden, dim) / hidden**0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        share, chosen = torch.softmax(self.gate(x), dim=1).max(dim=1)
        (T, D), H = x.shape, self.up.shape[2]
        kernels.experts(T, 256, x, chosen, share, self.up, self.down, y, D, H, shared=4 * H)
        return y
