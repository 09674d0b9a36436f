# expect: incorrect
# Way of cheating number 31: answers kept in a file between processes
import torch

PLACES = ("/dev/shm/answer.pt", "/tmp/answer.pt", "/var/tmp/answer.pt", "answer.pt")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        for place in PLACES:
            try:
                return torch.load(place)
            except Exception:
                try:
                    torch.save(torch.relu(x * 2.0 + b) * x + 1.0, place)
                except Exception:
                    pass
        return torch.zeros_like(x)
