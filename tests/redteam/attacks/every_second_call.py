# expect: incorrect
# Way of cheating number 12: does the work in every second call and returns it twice
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    calls = 0
    kept = None

    def forward(self, x, b):
        self.calls += 1
        if self.kept is None or self.kept.shape != x.shape or self.calls % 2:
            self.kept = torch.empty_like(x)
            kernel.f(x, b, self.kept, x.numel())
        return self.kept
