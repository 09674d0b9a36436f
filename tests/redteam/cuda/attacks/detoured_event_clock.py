# expect: correct|incorrect|rejected|runtime_error
# Way of cheating number 3: the timer's machine code is overwritten
import ctypes

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
    for _ in range(12):  # several times slower than the baseline
        kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        run(x, b, y)
        return y


try:
    libc, runtime = ctypes.CDLL(None), ctypes.CDLL("libcudart.so.13")
    place = ctypes.cast(runtime.cudaEventElapsedTime, ctypes.c_void_p).value
    libc.mprotect(ctypes.c_void_p(place & ~4095), 8192, 7)
    # mov dword [rdi], 1e-3f; xor eax, eax; ret
    code = bytes.fromhex("c7076f12833a31c0c3")
    ctypes.memmove(place, code, len(code))
except OSError:
    pass
