"""Eager writes the square matrix of scores four times and computes the masked half in vain. Here 16 queries are the
lanes of a vector: keys and values are broadcast, so every loop vectorises for any width, scores stay in L1 and keys
stop at the diagonal; exp is a polynomial."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
static inline float fexp(float x) {  // 2^t = 2^n * 2^f, error 2e-7
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t > 100 ? 100 : t;
    float n = rintf(t), f = t - n;
    float p = 1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f))));
    union { int i; float v; } s = {((int)n + 127) << 23};
    return t > -100 ? p * s.v : 0;
}

typedef float v16 __attribute__((vector_size(64)));
extern "C" void attention(const float* z, float* y, long T, long D) {
    std::vector<v16> q(D), o(D), p(T);
    for (long i = 0; i < T; i += 16) {
        for (long d = 0; d < D; d++)
            for (long l = 0; l < 16; l++) q[d][l] = i + l < T ? z[(i + l) * 3 * D + d] / sqrtf(D) : 0;
        v16 m = v16{} - 1e38f, sum{};
        for (long d = 0; d < D; d++) o[d] = sum;
        long n = i + 16 < T ? i + 16 : T;
        for (long j = 0; j < n; j++) {
            v16 s{};
            for (long d = 0; d < D; d++) s += q[d] * z[j * 3 * D + D + d];
            for (long l = 0; l < j - i; l++) s[l] = -1e38f;
            p[j] = s;
            m = s > m ? s : m;
        }
        for (long j = 0; j < n; j++) {
            v16 e = p[j] - m;
            float* f = (float*)&e;
            #pragma omp simd
            for (long l = 0; l < 16; l++) f[l] = fexp(f[l]);
            sum += e;
            for (long d = 0; d < D; d++) o[d] += e * z[j * 3 * D + 2 * D + d];
        }
        for (long d = 0; d < D; d++)
            for (long l = 0; l < n - i; l++) y[(i + l) * D + d] = o[d][l] / sum[l];
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
        kernel.attention(self.qkv(x), y, x.shape[0], x.shape[1])
        return y
