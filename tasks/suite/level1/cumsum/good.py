"""Each sum waits for the one before it, so the latency of an addition is the bound and not memory. Eight rows at a
time give eight independent chains; sums in double precision cost the same latency and stay exact."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void cumsum(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r += 8) {
        const float* a[8];
        float* o[8];
        double s[8] = {};
        for (long i = 0; i < 8; i++) {
            long at = r + i < rows ? r + i : rows - 1;
            a[i] = x + at * cols;
            o[i] = y + at * cols;
        }
        for (long c = 0; c < cols; c++)
            for (long i = 0; i < 8; i++) o[i][c] = s[i] += a[i][c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.cumsum(x, y, *x.shape)
        return y
