"""Bound by memory: eager passes over it three times. A warp takes a row of the cache and knows at once whether to
copy it, to take the new row, or to write zeros without reading; packs of 16 bytes are moved."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W>
__device__ void copy(const float* cache, const float* row, const long long* lengths, float* y, int S, int D) {
    typedef Pack<W> P;
    long long b = blockIdx.y, end = lengths[b];
    int s = blockIdx.x * 8 + threadIdx.x / 32;
    if (s >= S) return;
    const P* from = (const P*)(s < end ? cache + (b * S + s) * D : row + b * D);
    P* to = (P*)(y + (b * S + s) * D);
    #pragma unroll 4
    for (int d = threadIdx.x % 32; d < D / W; d += 32) {
        P p = {};
        if (s <= end) p = from[d];
        to[d] = p;
    }
}

extern "C" __global__ void run(const float* cache, const float* row, const long long* lengths, float* y, int S,
                            int D) {
    if (D % 4 == 0) copy<4>(cache, row, lengths, y, S, D);
    else copy<1>(cache, row, lengths, y, S, D);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, cache, new, lengths):
        y, (S, D) = torch.empty_like(cache), cache.shape[1:]
        kernels.run(((S + 7) // 8, len(y)), 256, cache, new, lengths, y, S, D)
        return y
