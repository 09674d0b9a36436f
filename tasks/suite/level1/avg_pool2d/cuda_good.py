"""Bound by memory: the input once and a quarter of it written. A thread loads 16 bytes of two rows and writes two
pixels at once where the width is a multiple of four, else one pixel from four loads. Blocks belong to planes, so one
division finds the place."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void avg_pool(const float* x, float* y, int H, int W, int P, int Q) {
    int t = blockIdx.y * blockDim.x + threadIdx.x;
    x += (long long)blockIdx.x * H * W;
    y += (long long)blockIdx.x * P * Q;
    if (W % 4 == 0 && H % 2 == 0) {
        int i = t / (Q / 2), j = t % (Q / 2);
        if (i >= P) return;
        float4 a = ((const float4*)(x + 2 * i * W))[j], b = ((const float4*)(x + 2 * i * W + W))[j];
        float2 o = {(a.x + a.y + b.x + b.y) * .25f, (a.z + a.w + b.z + b.w) * .25f};
        ((float2*)(y + i * Q))[j] = o;
    } else {
        int i = t / Q, j = t % Q;
        if (i >= P) return;
        const float* a = x + 2 * i * W + 2 * j;
        y[i * Q + j] = (a[0] + a[1] + a[W] + a[W + 1]) * .25f;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        P, Q = H // 2, W // 2
        y = x.new_empty(N, C, P, Q)
        threads = P * Q // 2 if W % 4 == 0 and H % 2 == 0 else P * Q
        kernels.avg_pool((N * C, (threads + 255) // 256), 256, x, y, H, W, P, Q)
        return y
