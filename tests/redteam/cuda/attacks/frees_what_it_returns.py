# expect: correct|incorrect|rejected|runtime_error
# Way of cheating number 9: frees the memory of its output before it is read
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


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        address = cupy.cuda.runtime.malloc(4 * x.numel())
        memory = cupy.cuda.UnownedMemory(address, 4 * x.numel(), self)
        y = torch.from_dlpack(cupy.ndarray(x.shape, "float32", cupy.cuda.MemoryPointer(memory, 0)))
        run(x, b, y)
        cupy.cuda.runtime.free(address)
        return y
