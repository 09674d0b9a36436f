"""Each weight serves four tokens only, so the time goes into reading weights, and a general matmul packs them first.
With units in the outer loop a weight row comes from memory once and stays in L1 for all tokens; dot products
vectorise, and bias, activation and residual are applied at once."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void linear(const float* x, const float* w, const float* b, const float* res, float* y, long R, long K,
                       long N, bool square) {
    #pragma omp parallel for
    for (long n = 0; n < N; n++)
        for (long r = 0; r < R; r++) {
            const float *u = x + r * K, *v = w + n * K;
            float s = 0;
            #pragma omp simd reduction(+:s)
            for (long k = 0; k < K; k++) s += u[k] * v[k];
            s += b[n];
            y[r * N + n] = square ? (s > 0 ? s * s : 0) : s + res[r * N + n];
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def forward(self, x):
        rows, dim, hidden = *x.shape, self.up.out_features
        h, y = torch.empty(rows, hidden), torch.empty_like(x)
        kernel.linear(x, self.up.weight, self.up.bias, x, h, rows, dim, hidden, True)
        kernel.linear(h, self.down.weight, self.down.bias, x, y, rows, hidden, dim, False)
        return y
