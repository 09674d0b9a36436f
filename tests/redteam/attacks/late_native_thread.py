# expect: incorrect
# Way of cheating number 9: the same from C++, behind Python's back
import torch

import warpsmith

SOURCE = r"""
#include <chrono>
#include <thread>
extern "C" void f(const float* x, const float* b, float* y, long n) {
    std::thread([=] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
    }).detach();
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
