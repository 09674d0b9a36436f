"""Messages are read once; the additions meet in the L2 cache, whose rate of atomics is the bound. Atomics of 16 bytes,
which compute capability 9.0 has for vectors, need a quarter of the requests. A warp takes an edge, so the target is
read once; nodes are copied by a kernel of 16-byte moves."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void copy(const float* x, float* y, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n / 4) ((float4*)y)[i] = ((const float4*)x)[i];
    else if (i == n / 4)
        for (long long k = 4 * i; k < n; k++) y[k] = x[k];
}

extern "C" __global__ void scatter(const long long* target, const float* x, float* y, int edges, int dim) {
    int e = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (e >= edges) return;
    x += (long long)e * dim;
    y += target[e] * dim;
    if (dim % 4 == 0)
        for (int c = lane; c < dim / 4; c += 32) atomicAdd((float4*)y + c, ((const float4*)x)[c]);
    else
        for (int c = lane; c < dim; c += 32) atomicAdd(y + c, x[c]);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, nodes, target, messages):
        y = torch.empty_like(nodes)
        n = nodes.numel()
        kernels.copy(n // 1024 + 1, 256, nodes, y, n)
        edges, dim = messages.shape
        kernels.scatter((edges + 7) // 8, 256, target, messages, y, edges, dim)
        return y
