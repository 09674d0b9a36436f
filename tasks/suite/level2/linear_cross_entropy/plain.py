"""Bound by multiply-adds. Row by row, the rows of weights are added to a buffer of logits, in double; then the
maximum is found and exp of the C library, called for each class, adds up."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
extern "C" void run(const float* x, const float* w, const long* t, float* y, long R, long K, long V) {
    for (long r = 0; r < R; r++) {
        std::vector<double> z(V);
        for (long k = 0; k < K; k++)
            for (long v = 0; v < V; v++) z[v] += x[r * K + k] * w[k * V + v];
        double m = z[0], s = 0;
        for (double l : z) m = fmax(m, l);
        for (double l : z) s += exp(l - m);
        y[r] = m + log(s) - z[t[r]];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, target):
        (R, K), V = x.shape, weight.shape[1]
        loss = x.new_empty(R)
        kernel.run(x, weight, target, loss, R, K, V)
        return loss.mean()
