"""Reading the caches is the bound. For each head, scores go into a buffer in double, then their maximum and sum, then
each output channel walks through the values with a stride, which wastes cache lines."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
extern "C" void decode(const float* q, const float* k, const float* v, const long* lengths, float* y, long B, long H,
                       long S, long D) {
    for (long i = 0; i < B * H; i++) {
        long n = lengths[i / H];
        std::vector<double> p(n);
        double m = -1e300, sum = 0;
        for (long j = 0; j < n; j++) {
            for (long d = 0; d < D; d++) p[j] += q[i * D + d] * k[(i * S + j) * D + d] / sqrt(D);
            m = fmax(m, p[j]);
        }
        for (double& e : p) sum += e = exp(e - m);
        for (long d = 0; d < D; d++) {
            double s = 0;
            for (long j = 0; j < n; j++) s += p[j] * v[(i * S + j) * D + d];
            y[i * D + d] = s / sum;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, q, keys, values, lengths):
        y, (B, H, S, D) = torch.empty_like(q), keys.shape
        kernel.decode(q, keys, values, lengths, y, B, H, S, D)
        return y
