"""Bound by multiply-adds. A border of zeros around the image means that no tap needs a check. Sixteen pixels of a row
times eight filters stay in vector registers over all channels and taps, so each load of pixels serves eight multiply-
adds."""

import torch

import warpsmith

SOURCE = r"""
typedef float V __attribute__((vector_size(64), aligned(4)));
extern "C" void conv(const float* x, const float* w, float* y, long N, long C, long F, long S) {
    long P = S + 17, H = S + 2;
    for (long n = 0; n < N; n++, x += C * H * P)
        for (long f = 0; f < F; f += 8)
            for (long i = 0; i < S; i++)
                for (long j = 0; j < S; j += 16) {
                    V s[8] = {};
                    const float* u[8];
                    for (long t = 0; t < 8; t++) u[t] = w + (f + t < F ? f + t : f) * C * 9;
                    for (long k = 0; k < C * 9; k++) {
                        V v = *(V*)(x + (k / 9 * H + i + k / 3 % 3) * P + j + k % 3);
                        for (long t = 0; t < 8; t++) s[t] += u[t][k] * v;
                    }
                    for (long t = 0; t < 8 && f + t < F; t++)
                        for (long l = j; l < j + 16 && l < S; l++) y[((n * F + f + t) * S + i) * S + l] = s[t][l - j];
                }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        (N, C, S, _), F = x.shape, len(w)
        y = x.new_empty(N, F, S, S)
        p = x.new_zeros(N, C, S + 2, S + 17)
        p[:, :, 1:-1, 1 : S + 1] = x
        kernel.conv(p, w, y, N, C, F, S)
        return y
