# expect: win|correct
# Honest, though it may look odd: keeps its weights transposed over calls, since parameters stay as they are
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
    transposed = None

    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(width, width))
        self.bias = torch.nn.Parameter(torch.empty(width))

    def forward(self, x):
        if self.transposed is None:
            self.transposed = self.weight.t().contiguous()
        y = torch.empty_like(x)
        kernel.f(x, self.transposed, self.bias, y, x.shape[0], x.shape[1])
        return y
