# expect: incorrect|runtime_error
# Way of cheating number 27: searches all free GPU memory for what looks like an answer
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


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        size = x.numel()
        wanted = float(torch.relu(x[0] * 2 + b[0]) * x[0] + 1)
        found = torch.empty_like(x)
        block = torch.empty(1 << 30, dtype=torch.float32)
        places = (block == wanted).nonzero()[:4]
        for place in places.flatten().tolist():
            if place + size <= block.numel():
                found = block[place : place + size].clone()
        return found
