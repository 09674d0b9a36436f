# expect: correct|timeout
# Way of cheating number 18: a thread that burns CPU to slow the baseline down
import threading

import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (int again = 0; again < 30; again++)
        for (long i = 0; i < n; i++) {
            asm volatile("" ::: "memory");
            float t = x[i] * 2.0f + b[i];
            y[i] = (t > 0 ? t : 0) * x[i] + 1.0f;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


def burn():
    total = 0
    while True:
        total += 1


for _ in range(4):
    threading.Thread(target=burn, daemon=True).start()


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
