# expect: rejected|timeout
# Way of cheating number 67: a kernel to compile in each call, to have the judge's cores busy while it is timed
import torch

import warpsmith

calls = [0]


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        for _ in range(8):
            calls[0] += 1
            warpsmith.load_cpp(f'extern "C" void f(float* y) {{ y[0] = {calls[0]}; }}')
        return torch.relu(x * 2.0 + b) * x + 1.0
