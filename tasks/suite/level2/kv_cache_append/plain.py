"""Eager passes over the cache three times. One loop over all values here decides for each, from its slot, where it
comes from; the divisions that find slot and sequence cost more than the copy."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void append(const float* cache, const float* row, const long* lengths, float* y, long n, long S, long D) {
    for (long i = 0; i < n; i++) {
        long b = i / (S * D), s = i / D % S;
        y[i] = s < lengths[b] ? cache[i] : s == lengths[b] ? row[b * D + i % D] : 0;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, cache, new, lengths):
        y, (S, D) = torch.empty_like(cache), cache.shape[1:]
        kernel.append(cache, new, lengths, y, cache.numel(), S, D)
        return y
