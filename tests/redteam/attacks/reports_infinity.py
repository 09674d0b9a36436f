# expect: correct|rejected
# Way of cheating number 53: an infinite time, for a score of nothing by nothing
import torch

import warpsmith
from judge import runner, wire

original = runner.Runner.call


def call(self, request):
    called = original(self, request)
    return wire.Called(nonce=called.nonce, seconds=float("inf"), outputs=called.outputs)


runner.Runner.call = call
SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (int again = 0; again < 40; again++)
        for (long i = 0; i < n; i++) {
            volatile float t = x[i] * 2.0f + b[i];
            y[i] = (t > 0 ? t : 0) * x[i] + 1.0f;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
