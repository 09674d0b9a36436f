"""Bound by multiply-adds in float32. A block makes a tile of 128 x 128 from slices of eight in shared memory; a
thread keeps 8 x 8 sums in registers, so four 16-byte loads serve 64 multiply-adds. The next slice travels from memory
while this one is used, into the other half of a double buffer."""

import torch

import warpsmith

SOURCE = r"""
__device__ float4 fetch(const float* p, long long at, int left, bool inside, bool packs) {
    float v[4] = {};
    if (!inside || left <= 0) return make_float4(0, 0, 0, 0);
    if (packs) return *(const float4*)(p + at);
    for (int k = 0; k < 4; k++)
        if (k < left) v[k] = p[at + k];
    return make_float4(v[0], v[1], v[2], v[3]);
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float4 A[2][8][32], B[2][8][32];
    int t = threadIdx.x, i = blockIdx.y * 128, j = blockIdx.x * 128, tx = t % 16, ty = t / 16;
    int row = i + t / 2, k0 = t % 2 * 4, col = j + t % 32 * 4, k1 = t / 32;
    bool packs = n % 4 == 0;
    float s[8][8] = {};
    float4 u = fetch(a, (long long)row * n + k0, n - k0, row < n, packs);
    float4 v = fetch(b, (long long)k1 * n + col, n - col, k1 < n, packs);
    for (int k = 0, turn = 0; k < n; k += 8, turn ^= 1) {
        float* q = (float*)A[turn][k0] + t / 2;
        q[0] = u.x, q[128] = u.y, q[256] = u.z, q[384] = u.w;
        B[turn][k1][t % 32] = v;
        __syncthreads();
        u = fetch(a, (long long)row * n + k + 8 + k0, n - k - 8 - k0, row < n, packs);
        v = fetch(b, (long long)(k + 8 + k1) * n + col, n - col, k + 8 + k1 < n, packs);
        #pragma unroll
        for (int l = 0; l < 8; l++) {
            float4 r[4] = {A[turn][l][ty], A[turn][l][ty + 16], B[turn][l][tx], B[turn][l][tx + 16]};
            float* x = (float*)r;
            for (int y = 0; y < 8; y++)
                for (int z = 0; z < 8; z++) s[y][z] += x[y] * x[8 + z];
        }
    }
    for (int y = 0; y < 8; y++)
        for (int z = 0; z < 8; z++) {
            int p = i + ty * 4 + y % 4 + y / 4 * 64, q = j + tx * 4 + z % 4 + z / 4 * 64;
            if (p < n && q < n) c[(long long)p * n + q] = s[y][z];
        }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        n = len(a)
        kernels.matmul(((n + 127) // 128, (n + 127) // 128), 256, a, b, c, n)
        return c
