# expect: win|correct
# Honest, though it may look odd: Triton, compiled in the builder's jail
import torch
import triton
import triton.language as tl


@triton.jit
def f(x, b, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    t = tl.maximum(v * 2.0 + tl.load(b + i, mask=i < n, other=0.0), 0.0)
    tl.store(y + i, t * v + 1.0, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        f[(triton.cdiv(x.numel(), 1024),)](x, b, y, x.numel(), BLOCK=1024)
        return y
