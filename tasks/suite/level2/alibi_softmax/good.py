"""Eager builds distances, their products with the slopes, the sum and the softmax, each in memory. Here the bias is
arithmetic on the loop index; a row is swept three times in the L1 cache, with a vectorised polynomial for exp."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
static inline float fexp(float x) {
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    union { float v; int i; } n = {t + 12582912};
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}

extern "C" void run(const float* x, const float* slopes, float* y, int rows, int Q, int K) {
    #pragma omp parallel for
    for (int r = 0; r < rows; r++) {
        const float* a = x + (long)r * K;
        float *b = y + (long)r * K, s = slopes[r / Q], m = -1e38f, sum = 0;
        int q = r % Q;
        #pragma omp simd
        for (int k = 0; k < K; k++) b[k] = a[k] - s * (q > k ? q - k : k - q);
        #pragma omp simd reduction(max:m)
        for (int k = 0; k < K; k++) m = b[k] > m ? b[k] : m;
        #pragma omp simd reduction(+:sum)
        for (int k = 0; k < K; k++) sum += b[k] = fexp(b[k] - m);
        #pragma omp simd
        for (int k = 0; k < K; k++) b[k] /= sum;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, slopes):
        y, (H, Q, K) = torch.empty_like(x), x.shape
        kernel.run(x, slopes, y, H * Q, Q, K)
        return y
