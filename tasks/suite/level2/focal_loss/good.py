"""Eager runs ten kernels over the full size. Here one exponential of a value gives both its logistic function and its
logarithm; exp and log are polynomials, and the sum of a row vectorises with them. Memory is read once."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
static inline float fexp(float x) {
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    union { float v; int i; } n = {t + 12582912};
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}
static inline float log1(float u) {  // log(1 + u), 0 <= u <= 1
    float s = u / (2 + u), q = s * s;
    return s * (2 + q * (.6666667f + q * (.4f + q * (.2857f + q * .243f))));
}

extern "C" void run(const float* x, const unsigned char* t, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        float sum = 0;
        #pragma omp simd reduction(+:sum)
        for (long c = r * cols; c < (r + 1) * cols; c++) {
            float z = t[c] ? -x[c] : x[c], m = z > 0 ? z : 0, e = fexp(z - 2 * m), p = (z > 0 ? 1 : e) / (1 + e);
            sum += (.75f - .5f * t[c]) * p * p * (m + log1(e));
        }
        y[r] = sum / cols;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, target):
        y = x.new_empty(x.shape[0])
        kernel.run(x, target.view(torch.uint8), y, *x.shape)
        return y
