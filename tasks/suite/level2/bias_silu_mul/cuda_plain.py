"""Three passes in eager, one here with a thread for each value. The column of the bias costs a division, and loads of
four bytes do not fill the memory's pipeline."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* b, const float* g, float* y, long long n, int cols) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n) {
        float t = x[i] + b[i % cols];
        y[i] = t / (1 + expf(-t)) * g[i];
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, gate):
        y = torch.empty_like(x)
        kernels.run((x.numel() + 255) // 256, 256, x, bias, gate, y, x.numel(), x.shape[1])
        return y
