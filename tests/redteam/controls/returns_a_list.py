# expect: win|correct
# Honest, though it may look odd: a list where the reference has a tuple
# task: task_rows
import torch

import warpsmith

SOURCE = r"""
#include <cmath>
#include <cstdint>
extern "C" void f(const float* x, float* masked, float* sums, int64_t* best, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        long top = 0;
        for (long c = 0; c < cols; c++) {
            float v = x[r * cols + c];
            masked[r * cols + c] = v < 0 ? -INFINITY : v;
            sum += v;
            if (v > x[r * cols + top]) top = c;
        }
        sums[r] = sum;
        best[r] = top;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        masked, sums = torch.empty_like(x), torch.zeros(rows)
        best = torch.empty(rows, dtype=torch.int64)
        kernel.f(x, masked, sums, best, rows, cols)
        return [masked, sums, best]
