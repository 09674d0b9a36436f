"""Eager runs every expert on every token. Each token meets its own expert only here, but sums are taken down the
columns of the weights: each load uses four bytes of a cache line and nothing vectorises."""

import torch

import warpsmith

SOURCE = r"""
#include <vector>
extern "C" void experts(const float* x, const long* chosen, const float* s, const float* u, const float* w,
                        float* y, long T, long D, long H) {
    for (long t = 0; t < T; t++, x += D, y += D) {
        long e = chosen[t] * D * H;
        std::vector<double> h(H);
        for (long k = 0; k < H; k++) {
            for (long d = 0; d < D; d++) h[k] += x[d] * u[e + d * H + k];
            h[k] *= h[k] > 0;
        }
        for (long d = 0; d < D; d++)
            for (long k = 0; k < H; k++) y[d] += h[k] * s[t] * w[e + k * D + d];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, experts, dim, hidden):
        super().__init__()
        self.gate = torch.nn.Linear(dim, experts)
        self.up = torch.nn.Parameter(torch.randn(experts, dim, hidden) / dim**0.5)
        self.down = torch.nn.Parameter(torch.randn(experts, hidden, dim) / hidden**0.5)

    def forward(self, x):
        y = torch.zeros_like(x)
        share, chosen = torch.softmax(self.gate(x), dim=1).max(dim=1)
        kernel.experts(x, chosen, share, self.up, self.down, y, *x.shape, self.up.shape[2])
        return y
