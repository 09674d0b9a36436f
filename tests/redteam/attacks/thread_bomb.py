# expect: runtime_error|incorrect
# Way of cheating number 51: threads without end
import torch

import warpsmith

SOURCE = r"""
#include <thread>
#include <vector>
#include <unistd.h>
extern "C" void f(float* y) {
    std::vector<std::thread> all;
    for (int i = 0; i < 100000; i++) all.emplace_back([] { for (;;) pause(); });
    y[0] = 0;
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.zeros_like(x)
        kernel.f(y)
        return y
