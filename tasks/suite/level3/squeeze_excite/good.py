"""Two passes over the feature map bound it, and eager adds seven small kernels with their overhead. A sample's means,
its two tiny layers and its scaling follow one another, so that the second pass finds the sample in the cache; sums
and scaling vectorise."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
extern "C" void excite(const float* x, const float* w, const float* b, const float* u, const float* v, float* y, long N,
                       long C, long L, long H) {
    #pragma omp parallel for
    for (long n = 0; n < N; n++) {
        std::vector<float> mean(C), hidden(H);
        for (long c = 0; c < C; c++) {
            const float* p = x + (n * C + c) * L;
            float s = 0;
            #pragma omp simd reduction(+:s)
            for (long l = 0; l < L; l++) s += p[l];
            mean[c] = s / L;
        }
        for (long h = 0; h < H; h++) {
            float s = b[h];
            for (long c = 0; c < C; c++) s += w[h * C + c] * mean[c];
            hidden[h] = s > 0 ? s : 0;
        }
        for (long c = 0; c < C; c++) {
            const float* p = x + (n * C + c) * L;
            float s = v[c], *o = y + (n * C + c) * L;
            for (long h = 0; h < H; h++) s += u[c * H + h] * hidden[h];
            s = 1 / (1 + expf(-s));
            #pragma omp simd
            for (long l = 0; l < L; l++) o[l] = p[l] * s;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.down = torch.nn.Linear(channels, hidden)
        self.up = torch.nn.Linear(hidden, channels)

    def forward(self, x):
        y, (N, C, L), H = torch.empty_like(x), x.shape, self.down.out_features
        w = self.down.weight, self.down.bias, self.up.weight, self.up.bias
        kernel.excite(x, *w, y, N, C, L, H)
        return y
