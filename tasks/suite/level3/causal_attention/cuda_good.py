"""Eager writes the square matrix of scores four times and computes its masked half. Here a warp takes four queries;
keys and values pass through shared memory in tiles of 32, one key for each lane, and a running maximum rescales the
outputs. Each key that is loaded serves four products; blocks with most keys start first."""

import torch

import warpsmith

SOURCE = r"""
struct alignas(16) F4 { float v[4]; };
extern "C" __global__ void attention(const float* z, float* y, int T, int D) {
    extern __shared__ float4 memory[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = (gridDim.x - 1 - blockIdx.x) * 16;
    int i = first + warp * 4;
    F4 *q = (F4*)memory + warp * D, *o = q + 4 * D, *p = (F4*)memory + 8 * D + warp * 32;
    float *k = (float*)memory + 32 * D + 512, *v = k + 32 * (D + 1), m[4], sum[4] = {};
    for (int a = 0; a < 4; a++) {
        m[a] = -INFINITY;
        for (int d = lane; d < D; d += 32) {
            q[d].v[a] = i + a < T ? z[(i + a) * 3 * D + d] * rsqrtf(D) : 0;
            o[d].v[a] = 0;
        }
    }
    for (int j = 0; j < first + 16; j += 32) {
        __syncthreads();
        for (int e = threadIdx.x; e < 32 * D; e += 128) {
            int r = e / D, d = e % D, at = (j + r) * 3 * D + D + d;
            k[e + r] = j + r < T ? z[at] : 0;
            v[e] = j + r < T ? z[at + D] : 0;
        }
        __syncthreads();
        F4 s = {}, c;
        for (int d = 0; d < D; d++)
            for (int a = 0; a < 4; a++) s.v[a] += q[d].v[a] * k[lane * (D + 1) + d];
        for (int a = 0; a < 4; a++) {
            if (j + lane > i + a) s.v[a] = -INFINITY;
            float n = s.v[a];
            for (int w = 16; w; w /= 2) n = fmaxf(n, __shfl_xor_sync(~0u, n, w));
            n = fmaxf(n, m[a]);
            c.v[a] = expf(m[a] - n);
            s.v[a] = expf(s.v[a] - n);
            sum[a] = sum[a] * c.v[a] + s.v[a];
            m[a] = n;
        }
        p[lane] = s;
        __syncwarp();
        for (int d = lane; d < D; d += 32) {
            F4 t = o[d];
            for (int a = 0; a < 4; a++) t.v[a] *= c.v[a];
            for (int l = 0; l < 32; l++)
                for (int a = 0; a < 4; a++) t.v[a] += p[l].v[a] * v[l * D + d];
            o[d] = t;
        }
    }
    for (int a = 0; a < 4; a++) {
        for (int w = 16; w; w /= 2) sum[a] += __shfl_xor_sync(~0u, sum[a], w);
        for (int d = lane; d < D && i + a < T; d += 32) y[(i + a) * D + d] = o[d].v[a] / sum[a];
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = torch.nn.Linear(dim, 3 * dim)

    def forward(self, x):
        y, (T, D) = torch.empty_like(x), x.shape
        z = self.qkv(torch.nn.functional.rms_norm(x, x.shape[1:]))
        kernels.attention((T + 15) // 16, 128, z, y, T, D, shared=384 * D + 2176)
        return y
