"""Two passes over the feature map are the bound, besides launches. One kernel reduces a channel in each block, with
packs of 16 bytes; in the second, each block computes its sample's hidden layer and its own channel's gate, from the
cache, and scales the channel."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
__device__ float block_sum(float v) {
    __shared__ float part[32];
    for (int k = 16; k; k /= 2) v += __shfl_xor_sync(~0u, v, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int k = 0; k < blockDim.x / 32; k++) v += part[k];
    __syncthreads();
    return v;
}
template <int W> __device__ float total(const float* x, int L) {
    float s = 0;
    for (int l = threadIdx.x; l < L / W; l += 256) {
        Pack<W> p = ((const Pack<W>*)x)[l];
        for (int k = 0; k < W; k++) s += p.v[k];
    }
    return block_sum(s);
}
template <int W> __device__ void scaled(const float* x, float* y, float s, int L) {
    for (int l = threadIdx.x; l < L / W; l += 256) {
        Pack<W> p = ((const Pack<W>*)x)[l];
        for (int k = 0; k < W; k++) p.v[k] *= s;
        ((Pack<W>*)y)[l] = p;
    }
}

extern "C" __global__ void mean(const float* x, float* m, int L) {
    x += (long long)blockIdx.x * L;
    float s = L % 4 ? total<1>(x, L) : total<4>(x, L);
    if (threadIdx.x == 0) m[blockIdx.x] = s / L;
}

extern "C" __global__ void excite(const float* x, const float* m, const float* w, const float* b, const float* u,
                                  const float* v, float* y, int C, int L, int H) {
    int warp = threadIdx.x / 32, c = blockIdx.x % C;
    float gate = 0;
    m += blockIdx.x / C * C;
    for (int h = warp; h < H; h += 8) {
        float s = 0;
        for (int k = threadIdx.x % 32; k < C; k += 32) s += w[h * C + k] * m[k];
        for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k);
        if (threadIdx.x % 32 == 0) gate += fmaxf(s + b[h], 0) * u[c * H + h];
    }
    gate = 1 / (1 + expf(-block_sum(gate) - v[c]));
    long long o = (long long)blockIdx.x * L;
    if (L % 4) scaled<1>(x + o, y + o, gate, L);
    else scaled<4>(x + o, y + o, gate, L);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.down = torch.nn.Linear(channels, hidden)
        self.up = torch.nn.Linear(hidden, channels)

    def forward(self, x):
        y, (N, C, L), H = torch.empty_like(x), x.shape, self.down.out_features
        w = self.down.weight, self.down.bias, self.up.weight, self.up.bias
        m = x.new_empty(N, C)
        kernels.mean(N * C, 256, x, m, L)
        kernels.excite(N * C, 256, x, m, *w, y, C, L, H)
        return y
