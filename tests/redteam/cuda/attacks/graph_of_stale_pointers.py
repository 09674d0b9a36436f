# expect: correct|incorrect|rejected|runtime_error
# Way of cheating number 11: a graph that was captured on the first call's pointers
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
        if x.shape not in graphs:
            y = torch.empty_like(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run(x, b, y)
            graphs[x.shape] = graph, y
        graph, y = graphs[x.shape]
        graph.replay()
        return y.clone()
