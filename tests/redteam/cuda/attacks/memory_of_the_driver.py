# expect: incorrect
# Way of cheating number 20: takes fresh memory from the driver, where the reference's answers were freed
import cupy
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


blocks = []


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        memory = cupy.cuda.UnownedMemory(cupy.cuda.runtime.malloc(4 * x.numel()), 4 * x.numel(), self)
        blocks.append(cupy.ndarray(x.shape, "float32", cupy.cuda.MemoryPointer(memory, 0)))
        return torch.from_dlpack(blocks[-1])
