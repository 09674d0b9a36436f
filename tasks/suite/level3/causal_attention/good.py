"""Eager writes the square matrix of scores four times and computes the masked half in vain. Here 8 queries are the
lanes of a vector: keys and values are broadcast, so everything vectorises for any width. A running maximum rescales
what was summed, so no score is stored, and keys stop at the diagonal."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
typedef float V __attribute__((vector_size(32)));
typedef int I __attribute__((vector_size(32)));
static inline V vexp(V x) {  // 2^n * 2^f
    V t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    V n = t + 12582912, f = t - (n - 12582912);  // rounds t
    V p = 1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f))));
    return p * (V)(((I)n + 127) << 23);
}

extern "C" void attention(const float* z, float* y, long T, long D) {
    std::vector<V> q(D);
    for (long i = 0; i < T; i += 8) {
        std::vector<V> o(D);
        V max = V{} - 1e38f, sum{};
        long end = i + 8 < T ? i + 8 : T;
        for (long l = i; l < end; l++)
            for (long d = 0; d < D; d++) q[d][l - i] = z[l * 3 * D + d] / sqrtf(D);
        for (long j = 0; j < end; j++) {
            const float *k = z + j * 3 * D + D, *v = k + D;
            V s{}, m = max;
            for (long d = 0; d < D; d++) s += q[d] * k[d];
            for (long l = i; l < j; l++) s[l - i] = -1e38f;
            max = s > m ? s : m;
            V c = vexp(m - max), e = vexp(s - max);
            sum = sum * c + e;
            for (long d = 0; d < D; d++) o[d] = o[d] * c + e * v[d];
        }
        for (long l = i; l < end; l++)
            for (long d = 0; d < D; d++) y[l * D + d] = o[d][l - i] / sum[l - i];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = torch.nn.Linear(dim, 3 * dim)

    def forward(self, x):
        y = torch.empty_like(x)
        z = self.qkv(torch.nn.functional.rms_norm(x, x.shape[1:]))
        kernel.attention(z, y, *x.shape)
        return y
