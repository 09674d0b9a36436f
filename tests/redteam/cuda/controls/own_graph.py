# expect: win|correct
# Honest, though it may look odd: captures a graph of its own for each pair of pointers
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


graphs = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        if torch.cuda.is_current_stream_capturing():
            y = torch.empty_like(x)
            run(x, b, y)
            return y
        key = x.data_ptr(), b.data_ptr(), x.shape
        if key not in graphs:
            y = torch.empty_like(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run(x, b, y)
            graphs[key] = graph, y
        graph, y = graphs[key]
        graph.replay()
        return y
