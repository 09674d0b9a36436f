"""A few tokens use each weight once, so the time is that of reading the weights. A warp takes two rows of weights,
reads them in packs of 16 bytes and multiplies four tokens, which come from the cache; shuffles add up the lanes, and
bias, activation and residual are applied at once."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W>
__device__ void rows(const float* x, const float* w, const float* b, const float* res, float* y, int R, int K, int N) {
    typedef Pack<W> P;
    int lane = threadIdx.x % 32, n = blockIdx.x * 16 + threadIdx.x / 32 * 2, r = blockIdx.y * 4;
    const P *v[2], *t[4];
    for (int j = 0; j < 2; j++) v[j] = (const P*)(w + (long long)min(n + j, N - 1) * K);
    for (int i = 0; i < 4; i++) t[i] = (const P*)(x + (long long)min(r + i, R - 1) * K);
    float s[2][4] = {};
    #pragma unroll 2
    for (int k = lane; k < K / W; k += 32) {
        P a[2] = {v[0][k], v[1][k]};
        for (int i = 0; i < 4; i++) {
            P c = t[i][k];
            for (int j = 0; j < 2; j++)
                for (int l = 0; l < W; l++) s[j][i] += a[j].v[l] * c.v[l];
        }
    }
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 4; i++) {
            float z = s[j][i];
            for (int l = 16; l; l /= 2) z += __shfl_xor_sync(~0u, z, l);
            if (lane || n + j >= N || r + i >= R) continue;
            z += b[n + j];
            int o = (r + i) * N + n + j;
            y[o] = res ? z + res[o] : z > 0 ? z * z : 0;
        }
}

extern "C" __global__ void linear(const float* x, const float* w, const float* b, const float* res, float* y, int R,
                                  int K, int N) {
    if (K % 4 == 0) rows<4>(x, w, b, res, y, R, K, N);
    else rows<1>(x, w, b, res, y, R, K, N);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def linear(self, x, layer, res):
        (R, K), N = x.shape, layer.out_features
        y = x.new_empty(R, N)
        kernels.linear(((N + 15) // 16, (R + 3) // 4), 256, x, layer.weight, layer.bias, res, y, R, K, N)
        return y

    def forward(self, x):
        return self.linear(self.linear(x, self.up, None), self.down, x)
