# expect: rejected|correct|incorrect|timeout
# Way of cheating number 18: leaves a kernel running while the baseline is timed
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
    for _ in range(5):  # several times slower than the baseline
        kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())


SPIN = r"""
extern "C" __global__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < nanoseconds);
}
"""
spinner = warpsmith.load_cuda(SPIN)

side = cupy.cuda.Stream(non_blocking=True)
torch.cuda.synchronize = lambda *args: None
calls = [0]


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        run(x, b, y)
        return y


honest = torch.cuda.CUDAGraph.replay


def replay(self):
    honest(self)
    with torch.cuda.stream(torch.cuda.ExternalStream(side.ptr)):
        spinner.spin(1024, 1024, 60000000)


torch.cuda.CUDAGraph.replay = replay
