"""Five passes in eager, one here with a thread for each value. A division finds the column of the shift, and loads of
four bytes leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* s, float* y, long long n, int cols) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n) {
        float t = 3 * tanhf((x[i] + s[i % cols]) * 0.4f);
        y[i] = fminf(fmaxf(t, -2.5f), 2.75f);
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, shift):
        y = torch.empty_like(x)
        kernels.run((x.numel() + 255) // 256, 256, x, shift, y, x.numel(), x.shape[1])
        return y
