# expect: correct|incorrect|rejected|runtime_error
# Way of cheating number 45: the runner is replaced by one that reports a millionth of the time
import gc

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


for one in [o for o in gc.get_objects() if type(o).__name__ == "CudaRunner"]:
    honest = type(one)._call_batch

    def false_batch(self, request, honest=honest):
        reply = honest(self, request)
        return type(reply)(nonce=reply.nonce, seconds=reply.seconds * 1e-6, outputs=reply.outputs)

    type(one)._call_batch = false_batch
