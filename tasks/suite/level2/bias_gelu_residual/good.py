"""Eager runs three kernels and writes two temporaries of the full size. Fused, each value is read once and written
once; what is left is the error function, replaced by a rational polynomial for the normal CDF that vectorises."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
static inline float phi(float x) {  // normal CDF, x * error 2e-6
    float u = x < -5 ? -5 : x > 5 ? 5 : x, s = u * u;
    float p = .3989529f + s * (.02254003f + s * .003665978f);
    float q = s * (.02130123f + s * (.0009991719f + s * (-9.043919e-6f + s * 5.765431e-8f)));
    return .5f + u * p / (1 + s * (.223253f + q));
}

extern "C" void run(const float* x, const float* b, const float* r, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        long o = i * cols;
        #pragma omp simd
        for (long c = 0; c < cols; c++) {
            float t = x[o + c] + b[c];
            y[o + c] = t * phi(t) + r[o + c];
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, residual):
        y = torch.empty_like(x)
        kernel.run(x, bias, residual, y, x.shape[0], x.shape[1])
        return y
