"""Two passes over the feature map are the bound. One kernel computes all means, added up one by one in double; the
two tiny layers run in torch; a second kernel scales value by value, with a division for the channel."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void mean(const float* x, float* m, long n, long L) {
    for (long i = 0; i < n; i++) {
        double s = 0;
        for (long l = 0; l < L; l++) s += x[i * L + l];
        m[i] = s / L;
    }
}
extern "C" void scale(const float* x, const float* g, float* y, long n, long L) {
    for (long i = 0; i < n * L; i++) y[i] = x[i] * g[i / L];
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.down = torch.nn.Linear(channels, hidden)
        self.up = torch.nn.Linear(hidden, channels)

    def forward(self, x):
        y, m, (N, C, L) = torch.empty_like(x), x.new_empty(x.shape[:2]), x.shape
        kernel.mean(x, m, N * C, L)
        gate = torch.sigmoid(self.up(torch.relu(self.down(m))))
        kernel.scale(x, gate, y, N * C, L)
        return y
