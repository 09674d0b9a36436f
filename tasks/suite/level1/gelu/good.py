"""One read and one write a value, so the time goes into the error function: an accurate one costs tens of
instructions. x * CDF(x) needs the CDF to 1e-6 only, which a rational polynomial gives with one division and no
branches, so that the loop vectorises."""

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

extern "C" void gelu(const float* x, float* y, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) y[i] = x[i] * phi(x[i]);
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.gelu(x, y, x.numel())
        return y
