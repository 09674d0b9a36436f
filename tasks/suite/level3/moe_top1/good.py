"""Eager runs every expert on every token and throws most of it away. Here a token meets its own expert only: rows of
the two weight matrices are added to a row of outputs in the L1 cache, which vectorises, and hidden values that ReLU
has cleared are skipped with their weights."""

import torch

import warpsmith

SOURCE = r"""
#include <vector>
extern "C" void experts(const float* x, const long* chosen, const float* share, const float* up, const float* down,
                        float* y, long T, long D, long H) {
    #pragma omp parallel for
    for (long t = 0; t < T; t++) {
        const float *u = up + chosen[t] * D * H, *w = down + chosen[t] * D * H;
        std::vector<float> hidden(H);
        float *h = hidden.data(), *o = y + t * D;
        for (long d = 0; d < D; d++) {
            float v = x[t * D + d];
            #pragma omp simd
            for (long k = 0; k < H; k++) h[k] += v * u[d * H + k];
            o[d] = 0;
        }
        for (long k = 0; k < H; k++) {
            if (h[k] <= 0) continue;
            float v = h[k] * share[t];
            #pragma omp simd
            for (long d = 0; d < D; d++) o[d] += v * w[k * D + d];
        }
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
        y = torch.empty_like(x)
        share, chosen = torch.softmax(self.gate(x), dim=1).max(dim=1)
        kernel.experts(x, chosen, share, self.up, self.down, y, *x.shape, self.up.shape[2])
        return y
