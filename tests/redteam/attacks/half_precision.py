# expect: incorrect
# Way of cheating number 34: computed in bfloat16
import torch

import warpsmith

kernel = warpsmith.load_cpp('extern "C" void touch(float* y) { y[0] += 0; }')


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        x, b = x.bfloat16(), b.bfloat16()
        y = (torch.relu(x * 2.0 + b) * x + 1.0).float()
        kernel.touch(y)
        return y
