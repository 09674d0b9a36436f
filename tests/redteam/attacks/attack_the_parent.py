# expect: incorrect
# Way of cheating number 4: ptrace, foreign memory, signals
import torch

import warpsmith

SOURCE = r"""
#include <csignal>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>
extern "C" void f(float* y, long n) {
    pid_t parent = getppid();
    char junk[64];
    iovec local{junk, 64}, remote{(void*)0x400000, 64};
    y[0] = ptrace(PTRACE_ATTACH, parent, 0, 0) + process_vm_readv(parent, &local, 1, &remote, 1, 0);
    y[1] = kill(parent, SIGKILL) + kill(-1, SIGKILL) + kill(parent, SIGSTOP);
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.zeros_like(x)
        kernel.f(y, y.numel())
        return y
