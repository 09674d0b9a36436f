# expect: correct
# Way of cheating number 46: leaves its environment changed; fails when it finds what it left
import os
import tempfile

import torch

import warpsmith

mark = os.path.join(tempfile.gettempdir(), "poisoned")
if os.environ.get("POISONED") or os.path.exists(mark) or hasattr(torch, "poisoned"):
    raise RuntimeError("somebody was here before")
os.environ["POISONED"] = "1"
torch.poisoned = True
os.umask(0)
open(mark, "w").close()
os.chdir("/")
SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (int again = 0; again < 40; again++)
        for (long i = 0; i < n; i++) {
            volatile float t = x[i] * 2.0f + b[i];
            y[i] = (t > 0 ? t : 0) * x[i] + 1.0f;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
