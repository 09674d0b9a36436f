"""One warp for each row: maximum, then the sum of exponentials from the cache, combined by shuffles; one number is
written, no log-softmax. Short loads by one warp a block leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void loss(const float* x, const long long* target, float* y, int cols) {
    const float* a = x + (long long)blockIdx.x * cols;
    float m = a[0], s = 0;
    for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, a[c]);
    for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    for (int c = threadIdx.x; c < cols; c += 32) s += expf(a[c] - m);
    for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k);
    if (threadIdx.x == 0) y[blockIdx.x] = m - a[target[blockIdx.x]] + logf(s);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, logits, target):
        y = logits.new_empty(len(logits))
        kernels.loss(logits.shape[0], 32, logits, target, y, logits.shape[1])
        return y
