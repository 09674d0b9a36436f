"""The values of a group lie side by side and fit into the cache, so memory sees one read and one write. Four vector
accumulators hide the latency of the two sums over the whole group; scale and shift become one multiply-add for each
channel."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
typedef float V __attribute__((vector_size(64), aligned(4)));
template <class F> static float total(const float* a, long n, F f) {
    V s[4] = {};
    float t = 0;
    long c = 0;
    for (; c + 64 <= n; c += 64)
        for (int k = 0; k < 4; k++) s[k] += f(*(V*)(a + c + 16 * k));
    for (; c < n; c++) t += f(a[c]);
    for (int k = 0; k < 64; k++) t += s[k / 16][k % 16];
    return t;
}

extern "C" void run(const float* x, const float* w, const float* b, float* y, long n, long C, long L, long S) {
    #pragma omp parallel for
    for (long o = 0; o < n; o += L) {
        float m = total(x + o, L, [](auto v) { return v; }) / L;
        float s = sqrtf(total(x + o, L, [=](auto v) { return (v - m) * (v - m); }) / L + 1e-5f);
        for (long p = o; p < o + L; p += S) {
            float k = w[p / S % C] / s, h = b[p / S % C];
            #pragma omp simd
            for (long i = p; i < p + S; i++) y[i] = (x[i] - m) * k + h;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, w, b):
        y = torch.empty_like(x)
        C, S = x.shape[1], x[0, 0].numel()
        kernel.run(x, w, b, y, x.numel(), C, C // 8 * S, S)
        return y
