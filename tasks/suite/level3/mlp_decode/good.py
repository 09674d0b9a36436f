"""With four tokens each weight is used four times only, so reading the weights is the bound, and a general matmul
first packs them. Each weight row is streamed once and multiplied with four tokens at a time, four vector accumulators
in flight; activation and residual are applied in the same loop."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
template <class F> static void linear(const float* x, const float* w, long R, long K, long N, F put) {
    for (long r = 0; r < R; r += 4) {
        const float* p[4];
        for (long i = 0; i < 4; i++) p[i] = x + (r + i < R ? r + i : R - 1) * K;
        const float *x0 = p[0], *x1 = p[1], *x2 = p[2], *x3 = p[3];
        #pragma omp parallel for
        for (long n = 0; n < N; n++) {
            const float* v = w + n * K;
            float a = 0, b = 0, c = 0, d = 0;
            #pragma omp simd reduction(+:a,b,c,d)
            for (long k = 0; k < K; k++) {
                a += v[k] * x0[k];
                b += v[k] * x1[k];
                c += v[k] * x2[k];
                d += v[k] * x3[k];
            }
            float s[4] = {a, b, c, d};
            for (long i = 0; i < 4 && r + i < R; i++) put((r + i) * N + n, n, s[i]);
        }
    }
}
extern "C" void up(const float* x, const float* w, const float* b, float* h, long R, long K, long N) {
    linear(x, w, R, K, N, [=](long o, long n, float s) { s = fmaxf(s + b[n], 0); h[o] = s * s; });
}
extern "C" void down(const float* h, const float* w, const float* b, const float* x, float* y, long R, long K, long N) {
    linear(h, w, R, K, N, [=](long o, long n, float s) { y[o] = x[o] + b[n] + s; });
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
