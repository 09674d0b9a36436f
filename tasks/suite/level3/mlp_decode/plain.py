"""Few tokens, so reading the weights is the bound. For each token and each unit one dot product in a vectorised loop;
activation and residual are fused, but the weights are read again for every token."""

import torch

import warpsmith

SOURCE = r"""
static float dot(const float* a, const float* b, long n) {
    float s = 0;
    #pragma omp simd reduction(+:s)
    for (long k = 0; k < n; k++) s += a[k] * b[k];
    return s;
}
extern "C" void up(const float* x, const float* w, const float* b, float* h, long R, long K, long N) {
    for (long r = 0; r < R; r++)
        for (long n = 0; n < N; n++) {
            float s = b[n] + dot(x + r * K, w + n * K, K);
            h[r * N + n] = s > 0 ? s * s : 0;
        }
}
extern "C" void down(const float* h, const float* w, const float* b, const float* x, float* y, long R, long K, long N) {
    for (long r = 0; r < R; r++)
        for (long n = 0; n < N; n++)
            y[r * N + n] = x[r * N + n] + b[n] + dot(h + r * K, w + n * K, K);
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def forward(self, x):
        (rows, dim), hidden = x.shape, self.up.out_features
        h, y = torch.empty(rows, hidden), torch.empty_like(x)
        kernel.up(x, self.up.weight, self.up.bias, h, rows, dim, hidden)
        kernel.down(h, self.down.weight, self.down.bias, x, y, rows, hidden, dim)
        return y
