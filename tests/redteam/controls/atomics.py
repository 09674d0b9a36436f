# expect: win|correct
# Honest, though it may look odd: sums in an order that differs from call to call
# task: task_rows
import torch

import warpsmith

SOURCE = r"""
#include <cmath>
#include <cstdint>
extern "C" void f(const float* x, float* masked, float* sums, int64_t* best, long rows, long cols) {
    #pragma omp parallel for num_threads(4) schedule(dynamic, 16)
    for (long i = 0; i < rows * cols; i++) {
        masked[i] = x[i] < 0 ? -INFINITY : x[i];
        #pragma omp atomic
        sums[i / cols] += x[i];
    }
    for (long r = 0; r < rows; r++) {
        long top = 0;
        for (long c = 1; c < cols; c++)
            if (x[r * cols + c] > x[r * cols + top]) top = c;
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
        return masked, sums, best
