"""Reading the matrix once is the bound; the vector comes from the cache. A warp takes two rows, so that a pack of the
vector serves both, with several 16-byte loads in flight for each lane; shuffles add up the lanes."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void rows(const float* a, const float* x, float* y, int R, int K) {
    typedef Pack<W> P;
    int lane = threadIdx.x % 32, r = (blockIdx.x * 8 + threadIdx.x / 32) * 2;
    const P *p = (const P*)(a + (long long)min(r, R - 1) * K), *q = (const P*)(a + (long long)min(r + 1, R - 1) * K);
    float s = 0, t = 0;
    #pragma unroll 4
    for (int k = lane; k < K / W; k += 32) {
        P u = p[k], v = q[k], w = ((const P*)x)[k];
        for (int l = 0; l < W; l++) s += u.v[l] * w.v[l], t += v.v[l] * w.v[l];
    }
    for (int k = 16; k; k /= 2) {
        s += __shfl_xor_sync(~0u, s, k);
        t += __shfl_xor_sync(~0u, t, k);
    }
    if (lane == 0 && r < R) y[r] = s;
    if (lane == 1 && r + 1 < R) y[r + 1] = t;
}

extern "C" __global__ void matvec(const float* a, const float* x, float* y, int R, int K) {
    if (K % 4 == 0) rows<4>(a, x, y, R, K);
    else rows<1>(a, x, y, R, K);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, x):
        y = x.new_empty(len(a))
        kernels.matvec((len(a) + 15) // 16, 256, a, x, y, *a.shape)
        return y
