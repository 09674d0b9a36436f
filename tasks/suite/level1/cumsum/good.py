"""Each sum waits for the one before it, so the latency of additions is the bound and not memory. Sixteen values are
scanned inside a vector, in four steps of a shift and an addition that do not depend on what came before; only the
carry from vector to vector waits."""

import torch

import warpsmith

SOURCE = r"""
typedef float V __attribute__((vector_size(64), aligned(4)));
typedef int I __attribute__((vector_size(64)));
template <int K> static inline V scan(V v) {  // adds the value K places to the left
    const I at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return v + __builtin_shuffle(v, V{}, at < K ? 16 : at - K);
}

extern "C" void cumsum(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float *o = y + r * cols, sum = 0;
        long c = 0;
        for (; c + 16 <= cols; c += 16) {
            V v = scan<8>(scan<4>(scan<2>(scan<1>(*(V*)(a + c))))) + sum;
            *(V*)(o + c) = v;
            sum = v[15];
        }
        for (; c < cols; c++) o[c] = sum += a[c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.cumsum(x, y, *x.shape)
        return y
