# expect: win|correct
# Honest, though it may look odd: compiles with CuPy itself and launches on torch's stream
import cupy
import torch

SOURCE = r"""
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { float t = x[i] * 2.f + b[i]; y[i] = fmaxf(t, 0.f) * x[i] + 1.f; }
}
"""
kernel = cupy.RawKernel(SOURCE, "f")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            pointers = [t.data_ptr() for t in (x, b, y)]
            kernel(((x.numel() + 255) // 256,), (256,), (*pointers, x.numel()))
        return y
