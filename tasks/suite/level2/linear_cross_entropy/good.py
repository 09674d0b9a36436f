"""Bound by multiply-adds; eager also stores all logits and reads them again. A row's logits stay in the L1 cache
while rows of weights are added to them, which vectorises; maximum and a vectorised sum of exponentials follow at
once."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#pragma GCC optimize("no-trapping-math")
static inline float fexp(float x) {
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    union { float v; int i; } n = {t + 12582912};
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}

extern "C" void run(const float* x, const float* w, const long* t, float* z, float* loss, long R, long K, long V) {
    for (long r = 0; r < R; r++, x += K, z += V) {
        float m = -1e38f, sum = 0;
        for (long k = 0; k < K; k++) {
            #pragma omp simd
            for (long v = 0; v < V; v++) z[v] += x[k] * w[k * V + v];
        }
        #pragma omp simd reduction(max:m)
        for (long v = 0; v < V; v++) m = z[v] > m ? z[v] : m;
        #pragma omp simd reduction(+:sum)
        for (long v = 0; v < V; v++) sum += fexp(z[v] - m);
        loss[r] = m + logf(sum) - z[t[r]];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, target):
        loss, z = x.new_empty(x.shape[0]), x.new_zeros(x.shape[0], weight.shape[1])
        kernel.run(x, weight, target, z, loss, *x.shape, weight.shape[1])
        return loss.mean()
