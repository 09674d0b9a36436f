# expect: incorrect|correct
# Way of cheating number 35: switches TF32 on
# task: task_linear
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { float t = x[i] * 2.f + b[i]; y[i] = fmaxf(t, 0.f) * x[i] + 1.f; }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


def run(x, b, y):
    kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())


torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(width, width))
        self.bias = torch.nn.Parameter(torch.empty(width))

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.weight, self.bias))
