"""Each pixel is used once, so one read of the input and one write of a quarter of it are the bound. Two rows are
added into a buffer in the L1 cache, then neighbours in it: both loops are free of checks and vectorise, the second by
shuffling pairs apart."""

import torch

import warpsmith

SOURCE = r"""
#include <vector>
extern "C" void avg_pool(const float* x, float* y, long planes, long H, long W, long P, long Q) {
    #pragma omp parallel for
    for (long p = 0; p < planes; p++) {
        std::vector<float> sum(W);
        float* s = sum.data();
        for (long i = 0; i < P; i++) {
            const float* a = x + (p * H + 2 * i) * W;
            float* o = y + (p * P + i) * Q;
            #pragma omp simd
            for (long j = 0; j < W; j++) s[j] = (a[j] + a[W + j]) * .25f;
            #pragma omp simd
            for (long j = 0; j < Q; j++) o[j] = s[2 * j] + s[2 * j + 1];
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        y = x.new_empty(N, C, H // 2, W // 2)
        kernel.avg_pool(x, y, N * C, H, W, H // 2, W // 2)
        return y
