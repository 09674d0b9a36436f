"""Each value is read once. Adding rows one by one would load and store the sums for every row, so eight rows are added
in registers first; the sums stay in the L1 cache and the loop over columns vectorises."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void column_sum(const float* x, float* y, long rows, long cols) {
    for (long c = 0; c < cols; c++) y[c] = 0;
    long r = 0;
    for (; r + 8 <= rows; r += 8) {
        const float* a = x + r * cols;
        #pragma omp simd
        for (long c = 0; c < cols; c++) {
            const float* p = a + c;
            float s = (p[0] + p[cols]) + (p[2 * cols] + p[3 * cols]);
            p += 4 * cols;
            y[c] += s + ((p[0] + p[cols]) + (p[2 * cols] + p[3 * cols]));
        }
    }
    for (; r < rows; r++)
        for (long c = 0; c < cols; c++) y[c] += x[r * cols + c];
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[1])
        kernel.column_sum(x, y, *x.shape)
        return y
