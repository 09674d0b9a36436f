"""Eager writes the weights as floats before it multiplies. One dot product for each token and unit here, added up in
double, one by one; weights come from the cache again for every token."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void run(const float* x, const signed char* w, const float* scale, float* y, long R, long K, long N) {
    for (long r = 0; r < R; r++)
        for (long n = 0; n < N; n++) {
            double s = 0;
            for (long k = 0; k < K; k++) s += x[r * K + k] * w[n * K + k];
            y[r * N + n] = s * scale[n];
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, scale):
        (R, K), N = x.shape, weight.shape[0]
        y = x.new_empty(R, N)
        kernel.run(x, weight, scale, y, R, K, N)
        return y
