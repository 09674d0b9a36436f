"""The caches are read once, so memory is the bound; eager reads what lies beyond a sequence's length too. Here keys
stop at the length; a running maximum rescales the sums, so one walk through keys and values suffices, and loops over
the head's size vectorise."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void decode(const float* q, const float* keys, const float* values, const long* lengths, float* y, long B,
                       long H, long S, long D) {
    float scale = 1 / sqrtf(D);
    #pragma omp parallel for
    for (long i = 0; i < B * H; i++) {
        const float *a = q + i * D, *k = keys + i * S * D, *v = values + i * S * D;
        float *o = y + i * D, m = -1e38f, sum = 0;
        for (long d = 0; d < D; d++) o[d] = 0;
        for (long j = 0; j < lengths[i / H]; j++, k += D, v += D) {
            float s = 0, c = 1;
            #pragma omp simd reduction(+:s)
            for (long d = 0; d < D; d++) s += a[d] * k[d];
            s *= scale;
            if (s > m) {
                c = expf(m - s);
                m = s;
            }
            float e = expf(s - m);
            sum = sum * c + e;
            #pragma omp simd
            for (long d = 0; d < D; d++) o[d] = o[d] * c + e * v[d];
        }
        for (long d = 0; d < D; d++) o[d] /= sum;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, q, keys, values, lengths):
        y, (B, H, S, D) = torch.empty_like(q), keys.shape
        kernel.decode(q, keys, values, lengths, y, B, H, S, D)
        return y
