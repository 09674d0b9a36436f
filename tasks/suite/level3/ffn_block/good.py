"""Few tokens share each weight, so reading weights matters as much as the products, and a general matmul packs them
first. Here a weight row is read once for four tokens with one vector accumulator each; bias, ReLU and residual are
applied to the sums at once."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void linear(const float* x, const float* w, const float* b, const float* res, float* y, long R, long K,
                       long N) {
    #pragma omp parallel for
    for (long n = 0; n < N; n++)
        for (long r = 0; r < R; r += 4) {
            const float *v = w + n * K, *p[4];
            for (long i = 0; i < 4; i++) p[i] = x + (r + i < R ? r + i : r) * K;
            float a = 0, c = 0, d = 0, e = 0;
            #pragma omp simd reduction(+:a,c,d,e)
            for (long k = 0; k < K; k++) {
                a += v[k] * p[0][k];
                c += v[k] * p[1][k];
                d += v[k] * p[2][k];
                e += v[k] * p[3][k];
            }
            float s[4] = {a, c, d, e};
            for (long i = 0; i < 4 && r + i < R; i++) {
                float t = s[i] + b[n];
                long o = (r + i) * N + n;
                y[o] = res ? t + res[o] : t > 0 ? t : 0;
            }
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

    def linear(self, x, layer, res):
        (R, K), N = x.shape, layer.out_features
        y = x.new_empty(R, N)
        kernel.linear(x, layer.weight, layer.bias, res, y, R, K, N)
        return y

    def forward(self, x):
        return self.linear(self.linear(self.norm(x), self.up, None), self.down, x)
