"""Eager writes the normalised tensor and reads it again for ReLU. Scale and shift of a channel are folded into two
numbers, so that a value costs one multiply-add and a maximum; the loop over a channel vectorises and memory is read
once."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* m, const float* v, const float* w, const float* b, float* y, long N,
                    long C, long L) {
    #pragma omp parallel for
    for (long i = 0; i < N * C; i++) {
        long c = i % C;
        float a = w[c] / sqrtf(v[c] + 1e-5f), d = b[c] - m[c] * a;
        #pragma omp simd
        for (long l = i * L; l < i * L + L; l++) {
            float t = x[l] * a + d;
            y[l] = t > 0 ? t : 0;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mean, var, weight, bias):
        y, (C, L) = torch.empty_like(x), x.shape[1:]
        kernel.run(x, mean, var, weight, bias, y, len(x), C, L)
        return y
