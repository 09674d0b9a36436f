"""Column by column: for each column all messages are added to their nodes. Consecutive accesses are a whole row apart,
so each touches another cache line and uses four bytes of it."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void scatter(const float* nodes, const long* target, const float* x, float* y, long N, long E, long D) {
    for (long c = 0; c < D; c++) {
        for (long n = 0; n < N; n++) y[n * D + c] = nodes[n * D + c];
        for (long e = 0; e < E; e++) y[target[e] * D + c] += x[e * D + c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, nodes, target, messages):
        y = torch.empty_like(nodes)
        kernel.scatter(nodes, target, messages, y, len(nodes), *messages.shape)
        return y
