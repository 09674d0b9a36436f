# expect: correct|incorrect|rejected|runtime_error
# Way of cheating number 10: a tensor that computes when it is looked at
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


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        lazy = args[0]
        if "work" in lazy.__dict__:
            x, b = lazy.__dict__.pop("work")
            run(x, b, lazy)
        return super().__torch_function__(function, types, args, kwargs or {})


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x).as_subclass(Lazy)
        y.work = x, b
        return y
