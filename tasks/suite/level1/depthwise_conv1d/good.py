"""Five multiply-adds a value: one read and one write are the bound, if nothing else is in the way. A row is copied
into a buffer with zeros at both ends, so the main loop needs no checks and vectorises, with the five weights in
registers."""

import torch

import warpsmith

SOURCE = r"""
#include <string.h>
#include <vector>
extern "C" void conv(const float* x, const float* w, float* y, long rows, long C, long T) {
    #pragma omp parallel
    {
        std::vector<float> buffer(T + 4);
        float* p = buffer.data();
        #pragma omp for
        for (long r = 0; r < rows; r++) {
            memcpy(p + 2, x + r * T, T * 4);
            const float* v = w + r % C * 5;
            float *o = y + r * T, a = v[0], b = v[1], c = v[2], d = v[3], e = v[4];
            #pragma omp simd
            for (long t = 0; t < T; t++) o[t] = a * p[t] + b * p[t + 1] + c * p[t + 2] + d * p[t + 3] + e * p[t + 4];
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        N, C, T = x.shape
        kernel.conv(x, weight, y, N * C, C, T)
        return y
