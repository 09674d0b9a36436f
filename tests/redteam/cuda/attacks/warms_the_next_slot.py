# expect: correct|incorrect|rejected|runtime_error
# Way of cheating number 16: reads the next call's inputs on a side stream, so that they lie in the cache
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


side = torch.cuda.Stream()
order, sink = [], torch.zeros(1)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        order.append((x, b))
        for other, bias in order[:2]:
            with torch.cuda.stream(side):
                sink.add_(other.sum() + bias.sum())
        run(x, b, y)
        return y
