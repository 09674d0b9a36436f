"""Bound by multiply-adds, then by the error function of eager's two extra passes. An output row stays in the L1 cache
and takes four rows of weights at a time, so that a load and a store serve four vectors of products; GELU follows at
once, by a rational polynomial that vectorises."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
static inline float phi(float x) {  // normal CDF
    float u = x < -5 ? -5 : x > 5 ? 5 : x, s = u * u;
    float p = .3989529f + s * (.02254003f + s * .003665978f);
    float q = s * (.02130123f + s * (.0009991719f + s * (-9.043919e-6f + s * 5.765431e-8f)));
    return .5f + u * p / (1 + s * (.223253f + q));
}

extern "C" void run(const float* x, const float* w, float* y, long M, long K, long N) {
    #pragma omp parallel for
    for (long m = 0; m < M; m++) {
        float *o = y + m * N, p[4];
        for (long k = 0, s; k < K; k += s) {
            s = k + 4 <= K ? 4 : 1;
            for (long i = 0; i < 4; i++) p[i] = i < s ? x[m * K + k + i] : 0;
            const float *u = w + k * N, *v = u + s / 4 * N, *t = v + s / 4 * N, *r = t + s / 4 * N;
            #pragma omp simd
            for (long n = 0; n < N; n++) o[n] += p[0] * u[n] + p[1] * v[n] + p[2] * t[n] + p[3] * r[n];
        }
        #pragma omp simd
        for (long n = 0; n < N; n++) o[n] *= phi(o[n]);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        y = bias.repeat(x.shape[0], 1)
        kernel.run(x, weight, y, *x.shape, weight.shape[1])
        return y
