"""Few values reach the best eight, so the work is telling that the others do not. Thirty-two at a time are compared
with the eighth best so far, which vectorises; only where one is larger are they looked at one by one and put in their
place."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
static void insert(float* best, float v) {
    if (!(v > best[7])) return;
    long i = 7;
    for (; i && best[i - 1] < v; i--) best[i] = best[i - 1];
    best[i] = v;
}

extern "C" void topk(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float* best = y + r * 8;
        for (long i = 0; i < 8; i++) best[i] = -INFINITY;
        for (long c = 0; c < cols; c += 32) {
            long end = c + 32 < cols ? c + 32 : cols;
            int larger = 0;
            float last = best[7];
            #pragma omp simd reduction(|:larger)
            for (long i = c; i < end; i++) larger |= a[i] > last;
            for (long i = c; larger && i < end; i++) insert(best, a[i]);
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(len(x), 8)
        kernel.topk(x, y, *x.shape)
        return y
