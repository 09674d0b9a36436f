# expect: win|correct
# Honest, though it may look odd: parameters under other names, in the same order
# task: task_linear
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* wt, const float* bias, float* y, long rows, long width) {
    for (long r = 0; r < rows; r++) {
        float* out = y + r * width;
        for (long j = 0; j < width; j++) out[j] = bias[j];
        for (long k = 0; k < width; k++)
            for (long j = 0; j < width; j++) out[j] += x[r * width + k] * wt[k * width + j];
        for (long j = 0; j < width; j++) out[j] = out[j] > 0 ? out[j] : 0;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = torch.nn.Parameter(torch.empty(width, width))
        self.b = torch.nn.Parameter(torch.empty(width))

    def forward(self, x):
        y = torch.empty_like(x)
        kernel.f(x, self.w.t().contiguous(), self.b, y, x.shape[0], x.shape[1])
        return y
