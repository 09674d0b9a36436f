# expect: incorrect|runtime_error
# Way of cheating number 27: opens IPC handles that it guesses from the one it was lent
import gc

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
        y = torch.empty_like(x)
        for runner in [o for o in gc.get_objects() if type(o).__name__ == "CudaRunner"]:
            for handle in list(runner._mapped):
                for position in range(0, 64, 8):
                    guess = bytearray(handle)
                    guess[position] ^= 1
                    try:
                        base = cupy.cuda.runtime.ipcOpenMemHandle(bytes(guess))
                        cupy.cuda.runtime.memcpy(y.data_ptr(), base, 4 * x.numel(), 3)
                        cupy.cuda.runtime.ipcCloseMemHandle(base)
                    except Exception:
                        pass
        return y
