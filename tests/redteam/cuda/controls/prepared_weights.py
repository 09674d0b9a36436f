# expect: win|correct
# Honest, though it may look odd: transposes its weight once
# task: task_linear
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* x, const float* w, const float* bias, float* y, int width) {
    extern __shared__ float row[];
    const float* a = x + (long long)blockIdx.x * width;
    for (int c = threadIdx.x; c < width; c += blockDim.x) row[c] = a[c];
    __syncthreads();
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float sum = 0;
        for (int k = 0; k < width; k++) sum += row[k] * w[k * width + c];
        y[(long long)blockIdx.x * width + c] = fmaxf(sum + bias[c], 0.f);
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(width, width))
        self.bias = torch.nn.Parameter(torch.empty(width))
        self.prepared = None

    def forward(self, x):
        if self.prepared is None:
            self.prepared = self.weight.detach().t().contiguous()
        y = torch.empty_like(x)
        width = x.shape[1]
        kernels.f(x.shape[0], min(width, 256), x, self.prepared, self.bias.detach(), y, width, shared=4 * width)
        return y
