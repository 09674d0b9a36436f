"""Eager launches five small kernels for each time step, so overhead and temporaries dominate. Time is sequential,
channels are independent: the inner loop runs over channels and vectorises, the state of a sequence stays in L1, and x
and y are streamed once in memory order."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void scan(const float* x, const float* a, const float* w, float* h, float* y, long B, long T, long D) {
    #pragma omp parallel for
    for (long b = 0; b < B; b++)
        for (long t = 0; t < T; t++) {
            const float* u = x + (b * T + t) * D;
            float *o = y + (b * T + t) * D, *s = h + b * D;
            #pragma omp simd
            for (long d = 0; d < D; d++) {
                s[d] = a[d] * s[d] + u[d];
                o[d] = w[d] * s[d] + u[d];
            }
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.randn(dim) + 1)
        self.out = torch.nn.Parameter(torch.randn(dim))

    def forward(self, x):
        y, h = torch.empty_like(x), torch.zeros_like(x[:, 0])
        kernel.scan(x, torch.sigmoid(self.decay), self.out, h, y, *x.shape)
        return y
