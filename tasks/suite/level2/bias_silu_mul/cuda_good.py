"""Bound by memory: eager stores two temporaries. A block takes a row, so that the bias needs no division; each thread
reads packs of 16 bytes of both inputs and writes the product. The exponential hides behind the loads."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void fused(const float* x, const float* b, const float* g, float* y, int cols) {
    typedef Pack<W> P;
    long long o = (long long)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P p = ((const P*)(x + o))[c], q = ((const P*)(g + o))[c], e = ((const P*)b)[c];
        for (int k = 0; k < W; k++) {
            float t = p.v[k] + e.v[k];
            q.v[k] *= t / (1 + expf(-t));
        }
        ((P*)(y + o))[c] = q;
    }
}

extern "C" __global__ void run(const float* x, const float* b, const float* g, float* y, int cols) {
    if (cols % 4 == 0) fused<4>(x, b, g, y, cols);
    else fused<1>(x, b, g, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, gate):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 256, x, bias, gate, y, x.shape[1])
        return y
