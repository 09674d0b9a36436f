"""Either reads or writes are far apart, and far-apart accesses use one value of a cache line at a time. Tiles of 16 x
16 use whole lines of both: 16 lines are read and stay in the L1 cache while 16 lines are written in full."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void transpose(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long i = 0; i < rows; i += 16)
        for (long j = 0; j < cols; j += 16) {
            const float* a = x + i * cols + j;
            float* o = y + j * rows + i;
            if (i + 16 <= rows && j + 16 <= cols) {
                for (long c = 0; c < 16; c++)
                    #pragma GCC unroll 16
                    for (long r = 0; r < 16; r++) o[c * rows + r] = a[r * cols + c];
            } else {
                for (long c = 0; c < 16 && j + c < cols; c++)
                    for (long r = 0; r < 16 && i + r < rows; r++) o[c * rows + r] = a[r * cols + c];
            }
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[1], x.shape[0])
        kernel.transpose(x, y, *x.shape)
        return y
