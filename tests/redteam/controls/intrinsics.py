# expect: win|correct
# Honest, though it may look odd: vector intrinsics and inline assembly
import torch

import warpsmith

SOURCE = r"""
#include <immintrin.h>
extern "C" void f(const float* x, const float* b, float* y, long n) {
    long i = 0;
    const __m128 two = _mm_set1_ps(2.0f), one = _mm_set1_ps(1.0f), zero = _mm_setzero_ps();
    for (; i + 4 <= n; i += 4) {
        __m128 v = _mm_loadu_ps(x + i);
        __m128 t = _mm_max_ps(_mm_add_ps(_mm_mul_ps(v, two), _mm_loadu_ps(b + i)), zero);
        _mm_storeu_ps(y + i, _mm_add_ps(_mm_mul_ps(t, v), one));
    }
    asm volatile("" ::: "memory");
    for (; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
