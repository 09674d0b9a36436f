# expect: incorrect
# Way of cheating number 33: answers for a bank of likely seeds, found by the first element
import torch

bank = {}
for seed in range(64):
    torch.manual_seed(seed)
    x, b = torch.randn(65536) + 0.3, torch.randn(65536)
    bank[round(float(x[0]), 5)] = torch.relu(x * 2.0 + b) * x + 1.0


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return bank.get(round(float(x[0]), 5), torch.zeros_like(x))
