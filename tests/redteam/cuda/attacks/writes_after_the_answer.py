# expect: correct|incorrect|rejected|runtime_error
# Way of cheating number 9: writes into the memory that it has handed out, when everybody believes it done
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


SPIN = r"""
extern "C" __global__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < nanoseconds);
}
"""
spinner = warpsmith.load_cuda(SPIN)

side = torch.cuda.Stream()
torch.cuda.Event.synchronize = lambda self: None
torch.cuda.synchronize = lambda *args: None
torch.cuda.Event.elapsed_time = lambda self, other: 1e-3


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        with torch.cuda.stream(side):
            spinner.spin(1, 1, 200000)
            run(x, b, y)
        return y
