# expect: win|correct
# Honest, though it may look odd: times two sizes of blocks with events in its first call
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


best = {}


def timed(block, x, b, y):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    kernels.f((x.numel() + block - 1) // block, block, x, b, y, x.numel())
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        if x.shape not in best and not torch.cuda.is_current_stream_capturing():
            best[x.shape] = min((128, 512), key=lambda block: timed(block, x, b, y))
        block = best.get(x.shape, 256)
        kernels.f((x.numel() + block - 1) // block, block, x, b, y, x.numel())
        return y
