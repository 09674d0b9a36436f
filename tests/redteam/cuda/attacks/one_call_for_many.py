# expect: rejected|correct|incorrect|runtime_error
# Way of cheating number 12: the last call of a batch does the work of all in one launch
# task: task_small
import gc

import cupy
import cupyx
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void all(const long long* plan, long long n) {
    const long long* row = plan + 3 * blockIdx.y;
    const float *x = (const float*)row[0], *b = (const float*)row[1];
    float* y = (float*)row[2];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { float t = x[i] * 2.f + b[i]; y[i] = fmaxf(t, 0.f) * x[i] + 1.f; }
}
"""
kernels = warpsmith.load_cuda(SOURCE)
runners = [o for o in gc.get_objects() if type(o).__name__ == "CudaRunner"]
seen = []


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        slots = runners[0]._slots if runners else []
        capturing = torch.cuda.is_current_stream_capturing()
        if not capturing or not slots:
            plan = torch.tensor([[t.data_ptr() for t in (x, b, y)]]).cuda()
            kernels.all(((x.numel() + 255) // 256, 1), 256, plan, x.numel())
            return y
        seen.append((x.data_ptr(), b.data_ptr(), y.data_ptr()))
        if len(seen) == len(slots):
            plan = pinned_plan(seen)
            kernels.all(((x.numel() + 255) // 256, len(seen)), 256, plan, x.numel())
            seen.clear()
        return y


def pinned_plan(rows):
    """In memory of the host, which a kernel can read and which needs no copy while a graph is captured."""
    plan = cupyx.empty_pinned((len(rows), 3), "int64")
    plan[:] = rows
    kept.append(plan)
    memory = cupy.cuda.UnownedMemory(plan.ctypes.data, plan.nbytes, plan)
    return torch.from_dlpack(cupy.ndarray(plan.shape, "int64", cupy.cuda.MemoryPointer(memory, 0)))


kept = []
