"""Each weight serves four tokens only, so the time goes into reading weights, and a general matmul packs them first.
Here a weight row is read once for four tokens, whose four vector accumulators hide the latency of multiply-add; bias,
activation and residual are applied at once."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void linear(const float* x, const float* w, const float* b, const float* res, float* y, long R, long K,
                       long N, bool square) {
    #pragma omp parallel for
    for (long n = 0; n < N; n++)
        for (long r = 0; r < R; r += 4) {
            const float *v = w + n * K, *p[4];
            for (long i = 0; i < 4; i++) p[i] = x + (r + i < R ? r + i : r) * K;
            float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            #pragma omp simd reduction(+:s0,s1,s2,s3)
            for (long k = 0; k < K; k++) {
                s0 += v[k] * p[0][k];
                s1 += v[k] * p[1][k];
                s2 += v[k] * p[2][k];
                s3 += v[k] * p[3][k];
            }
            float s[4] = {s0, s1, s2, s3};
            for (long i = 0; i < 4 && r + i < R; i++) {
                float t = s[i] + b[n];
                long o = (r + i) * N + n;
                y[o] = square ? (t > 0 ? t * t : 0) : t + res[o];
            }
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
