# expect: compile_error
# Way of cheating number 48: options for the compiler inside the source
import torch

import warpsmith

kernel = warpsmith.load_cpp(
    '#pragma GCC plugin "/tmp/evil.so"\n#include_next </proc/self/environ>\nextern "C" void f(float* y) { y[0] = 0; }'
)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
