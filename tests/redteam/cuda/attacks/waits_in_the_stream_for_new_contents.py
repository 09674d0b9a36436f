# expect: rejected|correct|incorrect|timeout|runtime_error
# Way of cheating number 18: a stream that begins to burn when the judge writes new contents
import ctypes

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
driver = ctypes.CDLL("libcuda.so.1")
torch.cuda.synchronize = lambda *args: None
first = []


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        first[:] = first or [x]
        y = torch.empty_like(x)
        run(x, b, y)
        return y


honest = torch.cuda.CUDAGraph.replay


def replay(self):
    honest(self)
    now = int(first[0].view(torch.int32)[0].item())
    # CU_STREAM_WAIT_VALUE_NOR or a greater value would do: whatever differs from what lies there now.
    driver.cuStreamWaitValue32_v2(
        ctypes.c_void_p(side.ptr), ctypes.c_uint64(first[0].data_ptr()), ctypes.c_uint32(~now & 0xFFFFFFFF), 3
    )
    with torch.cuda.stream(torch.cuda.ExternalStream(side.ptr)):
        spinner.spin(1024, 1024, 60000000)


torch.cuda.CUDAGraph.replay = replay
