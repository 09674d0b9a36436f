# expect: incorrect|runtime_error|timeout
# Way of cheating number 9: a thread launches the work after forward has returned
import threading
import time

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


side = torch.cuda.Stream()


def later(x, b, y):
    time.sleep(0.01)
    with torch.cuda.stream(side):
        run(x, b, y)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.zeros_like(x)
        threading.Thread(target=later, args=(x, b, y), daemon=True).start()
        return y
