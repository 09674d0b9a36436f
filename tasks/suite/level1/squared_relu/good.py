"""Eager makes three passes over memory (relu, square, scale), each reading and writing the whole tensor, and
allocates two temporaries: it is bound by memory traffic. One fused vectorised loop reads each value once and writes
it once."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
extern "C" void squared_relu(const float* x, float* y, long n, float scale) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        float t = x[i] < 0 ? 0 : x[i];
        y[i] = t * t * scale;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.squared_relu(x, y, x.numel(), 0.5)
        return y
