# expect: win|correct
# Honest, though it may look odd: keeps notes in its scratch folder
import os
import tempfile

import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)
with open(os.path.join(tempfile.gettempdir(), "notes.txt"), "a") as notes:
    notes.write("built\n")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
