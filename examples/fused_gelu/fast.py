"""Eager PyTorch reads and writes the matrix once per operation, so it is bound by memory, and its erf is costly.

One pass does all four operations. GELU needs the normal CDF to about 1e-6 only: a rational function gives it with one
division and no branch, so that the inner loop vectorises.
"""

import torch

import warpsmith

SOURCE = r"""
static inline float cdf(float x) {  // of the normal distribution; x * error stays below 2e-6
    float u = x < -5 ? -5 : x > 5 ? 5 : x, s = u * u;
    float p = .3989529f + s * (.02254003f + s * .003665978f);
    float q = s * (.02130123f + s * (.0009991719f + s * (-9.043919e-6f + s * 5.765431e-8f)));
    return .5f + u * p / (1 + s * (.223253f + q));
}
extern "C" void fused(const float* __restrict__ x, const float* __restrict__ bias, const float* __restrict__ res,
                      float* __restrict__ y, long rows, long cols, float scale) {
    for (long r = 0; r < rows; r++) {
        const float* xr = x + r * cols; const float* rr = res + r * cols; float* yr = y + r * cols;
        #pragma omp simd
        for (long c = 0; c < cols; c++) {
            float v = xr[c] + bias[c];
            yr[c] = v * cdf(v) * scale + rr[c];
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, bias, residual):
        y = torch.empty_like(x)
        kernel.fused(x, bias, residual, y, x.shape[0], x.shape[1], self.scale)
        return y
