"""Bound by multiply-adds; eager adds six elementwise passes and reorders data for its convolution. The image is
padded once, so that each row of outputs takes nine taps of each channel in a loop without branches that vectorises;
norm, residual and ReLU follow on the same row."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void conv(const float* x, const float* w, const float* scale, const float* shift, const float* res, float* y,
                     long N, long C, long H, long W) {
    long P = W + 2;
    #pragma omp parallel for
    for (long i = 0; i < N * C * H; i++) {
        long c = i / H % C, n = i / H / C;
        const float *v = w + c * C * 9, *a = x + (n * C * (H + 2) + i % H) * P;
        float* o = y + i * W;
        for (long l = 0; l < W; l++) o[l] = 0;
        for (long k = 0; k < C; k++, v += 9, a += (H + 2) * P) {
            const float *b = a + P, *d = b + P;
            #pragma omp simd
            for (long l = 0; l < W; l++)
                o[l] += v[0] * a[l] + v[1] * a[l + 1] + v[2] * a[l + 2] + v[3] * b[l] + v[4] * b[l + 1] +
                        v[5] * b[l + 2] + v[6] * d[l] + v[7] * d[l + 1] + v[8] * d[l + 2];
        }
        for (long l = 0; l < W; l++) {
            float t = o[l] * scale[c] + shift[c] + (res ? res[i * W + l] : 0);
            o[l] = t > 0 ? t : 0;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, channels, channels, 3, 3) / (3 * channels**0.5))
        self.scale = torch.nn.Parameter(torch.rand(2, channels, 1, 1) + 0.5)
        self.shift = torch.nn.Parameter(torch.randn(2, channels, 1, 1))

    def conv(self, x, i, res):
        y, (N, C, H, W) = torch.empty_like(x), x.shape
        x = torch.nn.functional.pad(x, (1, 1, 1, 1))
        kernel.conv(x, self.weight[i], self.scale[i], self.shift[i], res, y, N, C, H, W)
        return y

    def forward(self, x):
        return self.conv(self.conv(x, 0, None), 1, x)
