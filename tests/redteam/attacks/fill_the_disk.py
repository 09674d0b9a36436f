# expect: correct
# Way of cheating number 63: takes all room for files from whoever is judged next; fails when it finds none
import tempfile

import torch

import warpsmith

kernel = warpsmith.load_cpp('extern "C" void f(float* y) { y[0] = 0; }')
written = 0
try:
    for number in range(40):
        with open(f"{tempfile.gettempdir()}/fill{number}", "wb") as file:
            written += file.write(b"x" * (1 << 20))
except OSError:
    pass
if written < 1 << 20:
    raise MemoryError("somebody else has filled it")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty(1)
        kernel.f(y)
        return torch.relu(x * 2.0 + b) * x + 1.0
