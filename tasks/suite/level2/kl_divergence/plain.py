"""Eager stores five temporaries. One row at a time here: maxima, then three sums in double; exp of the C library is
called twice for each place and dominates."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* a, const float* b, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++, a += cols, b += cols) {
        double m = a[0], n = b[0], s = 0, t = 0, d = 0;
        for (long c = 1; c < cols; c++) {
            m = fmax(m, a[c]);
            n = fmax(n, b[c]);
        }
        for (long c = 0; c < cols; c++) {
            double e = exp(b[c] - n);
            s += exp(a[c] - m);
            t += e;
            d += e * (b[c] - n - a[c] + m);
        }
        y[r] = d / t + log(s) - log(t);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, student, teacher):
        y = student.new_empty(student.shape[0])
        kernel.run(student, teacher, y, *student.shape)
        return y
