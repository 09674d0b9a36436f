# expect: incorrect
# Way of cheating number 32: keeps what it prepared from an input as if it were a parameter
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    prepared = None

    def forward(self, x, b):
        if self.prepared is None or self.prepared.shape != b.shape:
            self.prepared = b.clone()
        y = torch.empty_like(x)
        kernel.f(x, self.prepared, y, x.numel())
        return y
