"""Carrying an index beside the maximum keeps loops from vectorising. So take the maximum of blocks of 128 values,
which vectorises, remember the first block that holds a new one, and look inside that block alone for the place:
little more than one read of the input."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
extern "C" void argmax(const float* x, long* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float best = a[0];
        long at = 0;
        for (long b = 0; b < cols; b += 128) {
            long end = b + 128 < cols ? b + 128 : cols;
            float m = a[b];
            #pragma omp simd reduction(max:m)
            for (long c = b; c < end; c++) m = a[c] > m ? a[c] : m;
            if (m > best) best = m, at = b;
        }
        while (a[at] != best) at++;
        y[r] = at;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.int64)
        kernel.argmax(x, y, *x.shape)
        return y
