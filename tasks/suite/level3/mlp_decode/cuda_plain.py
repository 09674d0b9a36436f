"""Reading the weights is the bound. One warp for each token and unit adds up the products, lanes side by side in a
row of weights; each row is read once for every token. Bias, activation and residual are applied by the first lane."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void linear(const float* x, const float* w, const float* b, const float* res, float* y, int K,
                                  int N) {
    int n = blockIdx.x, r = blockIdx.y, o = r * N + n;
    float s = 0;
    for (int k = threadIdx.x; k < K; k += 32) s += x[r * K + k] * w[(long long)n * K + k];
    for (int l = 16; l; l /= 2) s += __shfl_xor_sync(~0u, s, l);
    if (threadIdx.x == 0) {
        s += b[n];
        y[o] = res ? s + res[o] : s > 0 ? s * s : 0;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def linear(self, x, layer, res):
        y = x.new_empty(x.shape[0], layer.out_features)
        kernels.linear((y.shape[1], y.shape[0]), 32, x, layer.weight, layer.bias, res, y, x.shape[1], y.shape[1])
        return y

    def forward(self, x):
        return self.linear(self.linear(x, self.up, None), self.down, x)
