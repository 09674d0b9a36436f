# expect: win|correct
# Honest, though it may look odd: compiles in its first call, from a source that is put together
import torch

import warpsmith

BODY = "float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f;"
kernels = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        if "f" not in kernels:
            arguments = "const float* x, const float* b, float* y, long n"
            kernels["f"] = warpsmith.load_cpp(
                f'extern "C" void f({arguments}) {{ for (long i = 0; i < n; i++) {{ {BODY} }} }}'
            )
        y = torch.empty_like(x)
        kernels["f"].f(x, b, y, x.numel())
        return y
