"""The products are the bound. One dot product for each token and unit in double, added up one by one, token by token;
norm, ReLU and residual run in torch."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void linear(const float* x, const float* w, const float* b, float* y, long R, long K, long N) {
    for (long r = 0; r < R; r++)
        for (long n = 0; n < N; n++) {
            double s = b[n];
            for (long k = 0; k < K; k++) s += x[r * K + k] * w[n * K + k];
            y[r * N + n] = s;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(dim)
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def linear(self, x, layer):
        y = x.new_empty(x.shape[0], layer.out_features)
        kernel.linear(x, layer.weight, layer.bias, y, *x.shape, y.shape[1])
        return y

    def forward(self, x):
        return x + self.linear(torch.relu(self.linear(self.norm(x), self.up)), self.down)
