# expect: correct
# Way of cheating number 62: all pairs get the same cases: the first one's answers, kept in a file, serve the others
import os
import tempfile

import numpy as np
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (int again = 0; again < 30; again++)
        for (long i = 0; i < n; i++) {
            asm volatile("" ::: "memory");
            float t = x[i] * 2.0f + b[i];
            y[i] = (t > 0 ? t : 0) * x[i] + 1.0f;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)
folder = tempfile.gettempdir()
known = {
    name: torch.from_numpy(np.fromfile(f"{folder}/{name}", dtype=np.float32))
    for name in os.listdir(folder)
    if name.startswith("kept")
}
if known:
    raise SystemExit("found what another process kept")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        name = f"kept{int(x[:2].sum().view(torch.int32))}"
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        try:
            y.numpy().tofile(f"{folder}/{name}")
            os.chmod(f"{folder}/{name}", 0o644)
        except OSError:
            pass
        return y
