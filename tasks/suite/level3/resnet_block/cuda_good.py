"""Bound by multiply-adds. A block computes a tile of 16 by 16 pixels of 16 channels: for each input channel the tile
with its border and the weights lie in shared memory, and a thread's nine pixels serve 144 products in registers.
Norm, residual and ReLU are applied there."""

import torch

import warpsmith

SOURCE = r"""
struct alignas(16) F4 { float v[4]; };
extern "C" __global__ void conv(const float* x, const float* w, const float* scale, const float* shift,
                                const float* res, float* y, int C, int H, int W) {
    __shared__ float a[18][20];
    __shared__ F4 b[9][4];
    int t = threadIdx.x, ty = t / 16, tx = t % 16, tiles = (W + 15) / 16, c = blockIdx.y * 16, n = blockIdx.z;
    int h = blockIdx.x / tiles * 16, l = blockIdx.x % tiles * 16;
    float s[16] = {}, p[9];
    for (int k = 0; k < C; k++) {
        for (int e = t; e < 324; e += 256) {
            int i = h + e / 18 - 1, j = l + e % 18 - 1;
            a[e / 18][e % 18] = i >= 0 && i < H && j >= 0 && j < W ? x[((n * C + k) * H + i) * W + j] : 0;
        }
        if (t < 144) b[t % 9][t / 36].v[t / 9 % 4] = c + t / 9 < C ? w[((c + t / 9) * C + k) * 9 + t % 9] : 0;
        __syncthreads();
        for (int q = 0; q < 9; q++) p[q] = a[ty + q / 3][tx + q % 3];
        #pragma unroll
        for (int q = 0; q < 9; q++)
            for (int g = 0; g < 4; g++) {
                F4 f = b[q][g];
                for (int m = 0; m < 4; m++) s[g * 4 + m] += p[q] * f.v[m];
            }
        __syncthreads();
    }
    #pragma unroll
    for (int m = 0; m < 16; m++) {
        if (c + m >= C || h + ty >= H || l + tx >= W) continue;
        int o = ((n * C + c + m) * H + h + ty) * W + l + tx;
        y[o] = fmaxf(s[m] * scale[c + m] + shift[c + m] + (res ? res[o] : 0), 0);
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, channels, channels, 3, 3) / (3 * channels**0.5))
        self.scale = torch.nn.Parameter(torch.rand(2, channels, 1, 1) + 0.5)
        self.shift = torch.nn.Parameter(torch.randn(2, channels, 1, 1))

    def conv(self, x, i, res):
        y, (N, C, H, W) = torch.empty_like(x), x.shape
        blocks = ((H + 15) // 16) * ((W + 15) // 16), (C + 15) // 16, N
        kernels.conv(blocks, 256, x, self.weight[i], self.scale[i], self.shift[i], res, y, C, H, W)
        return y

    def forward(self, x):
        return self.conv(self.conv(x, 0, None), 1, x)
