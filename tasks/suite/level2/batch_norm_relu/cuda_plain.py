"""Two passes in eager, one here: a thread for each value finds its channel by divisions and applies the whole
formula. Loads of four bytes leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* m, const float* v, const float* w, const float* b, float* y,
                               long long n, int C, int L) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i >= n) return;
    int c = i / L % C;
    y[i] = fmaxf((x[i] - m[c]) * rsqrtf(v[c] + 1e-5f) * w[c] + b[c], 0);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mean, var, weight, bias):
        y, (C, L) = torch.empty_like(x), x.shape[1:]
        n = x.numel()
        kernels.run((n + 255) // 256, 256, x, mean, var, weight, bias, y, n, C, L)
        return y
