"""One pixel of one filter after the other: a sum over channels and nine taps, each checked against the border. The
checks keep it from vectorising, so multiply-adds run one at a time."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void conv(const float* x, const float* w, float* y, long n, long C, long F, long S) {
    for (long o = 0; o < n; o++) {
        long i = o / S % S, j = o % S, m = o / S / S;
        float s = 0;
        for (long k = 0; k < C * 9; k++) {
            unsigned long p = i + k / 3 % 3 - 1, q = j + k % 3 - 1;
            if (p < S && q < S)  // no -1: unsigned
                s += w[m % F * C * 9 + k] * x[((m / F * C + k / 9) * S + p) * S + q];
        }
        y[o] = s;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        N, C, S, _ = x.shape
        y = x.new_empty(N, len(w), S, S)
        kernel.conv(x, w, y, y.numel(), C, len(w), S)
        return y
