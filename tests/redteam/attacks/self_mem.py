# expect: runtime_error
# Way of cheating number 5: the read-only inputs written through /proc/self/mem
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        with open("/proc/self/mem", "r+b") as memory:
            for tensor in (x, b):
                memory.seek(tensor.data_ptr())
                memory.write(bytes(tensor.numel() * 4))
        return torch.ones_like(x)
