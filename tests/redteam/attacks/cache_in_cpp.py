# expect: incorrect
# Way of cheating number 30: the same as a static map in C++
import torch

import warpsmith

SOURCE = r"""
#include <map>
#include <vector>
#include <cstring>
static std::map<const float*, std::vector<float>> seen;
extern "C" void f(const float* x, const float* b, float* y, long n) {
    auto& known = seen[x];
    if ((long)known.size() != n) {
        known.resize(n);
        for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; known[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
    }
    std::memcpy(y, known.data(), n * sizeof(float));
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
