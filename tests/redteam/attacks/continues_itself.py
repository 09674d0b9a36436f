# expect: correct|rejected
# Way of cheating number 61: SIGCONT to itself cancels the judge's SIGSTOP, which then waits for ever
import torch

import warpsmith

SOURCE = r"""
#include <csignal>
#include <thread>
#include <unistd.h>
#include <sys/syscall.h>
extern "C" void f(float* y) {
    std::thread([] { while (syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGCONT) == 0); }).detach();
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        kernel.f(torch.zeros(1))

    def forward(self, x, b):
        return torch.relu(x * 2.0 + b) * x + 1.0
