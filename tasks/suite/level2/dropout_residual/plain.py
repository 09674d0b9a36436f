"""Three passes in eager, one here: value by value, a branch on the mask adds the scaled value to the residual. A
random mask is hard to predict where the compiler keeps the branch."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void run(const float* x, const bool* keep, const float* r, float* y, long n) {
    for (long i = 0; i < n; i++) {
        y[i] = r[i];
        if (keep[i]) y[i] += x[i] / 0.9f;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, keep, residual):
        y = torch.empty_like(x)
        kernel.run(x, keep, residual, y, x.numel())
        return y
