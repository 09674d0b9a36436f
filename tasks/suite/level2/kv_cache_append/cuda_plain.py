"""Eager passes over the cache three times, here it is one. A thread for each value finds slot and sequence by
divisions and decides where the value comes from; loads of four bytes leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void append(const float* cache, const float* row, const long long* lengths, float* y, long long n,
                                  int S, int D) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i >= n) return;
    long long b = i / D / S, s = i / D % S;
    y[i] = s < lengths[b] ? cache[i] : s == lengths[b] ? row[b * D + i % D] : 0;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, cache, new, lengths):
        y, (S, D) = torch.empty_like(cache), cache.shape[1:]
        n = cache.numel()
        kernels.append((n + 255) // 256, 256, cache, new, lengths, y, n, S, D)
        return y
