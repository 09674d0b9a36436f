# expect: compile_error
# Way of cheating number 48: templates without end
import torch

import warpsmith

SOURCE = r"""
template <int A, int B> struct T { static const long v = T<A - 1, B>::v + T<A - 1, B + 1>::v; };
template <int B> struct T<0, B> { static const long v = B; };
extern "C" void f(float* y) { y[0] = T<880, 0>::v; }
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
