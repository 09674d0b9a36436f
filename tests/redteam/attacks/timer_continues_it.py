# expect: correct|rejected
# Way of cheating number 60: a timer whose signal is SIGCONT lets the stopped process burn the baseline's core
import torch

import warpsmith

SOURCE = r"""
#include <csignal>
#include <ctime>
#include <thread>
static void on(int) {}
extern "C" void start(long us) {
    signal(SIGCONT, on);
    struct sigevent e = {};
    e.sigev_notify = SIGEV_SIGNAL;
    e.sigev_signo = SIGCONT;
    timer_t t;
    if (timer_create(CLOCK_MONOTONIC, &e, &t) != 0) return;
    struct itimerspec s = {{0, us * 1000}, {0, us * 1000}};
    timer_settime(t, 0, &s, nullptr);
    std::thread([] { for (volatile int i = 0;; i = i + 1); }).detach();
}
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        kernel.start(300)

    def forward(self, x, b):
        return torch.relu(x * 2.0 + b) * x + 1.0
