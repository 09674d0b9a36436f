# expect: correct|runtime_error
# Way of cheating number 3: the code of clock_gettime overwritten with a return
import torch

import warpsmith

SOURCE = r"""
#include <cstring>
#include <sys/mman.h>
#include <time.h>
extern "C" void patch(float* y) {
    unsigned char* code = (unsigned char*)clock_gettime;
    void* page = (void*)((unsigned long)code & ~4095ul);
    y[0] = mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    if (y[0] == 0) std::memcpy(code, "\x31\xc0\xc3", 3);
}
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (int again = 0; again < 40; again++)
        for (long i = 0; i < n; i++) {
            volatile float t = x[i] * 2.0f + b[i];
            y[i] = (t > 0 ? t : 0) * x[i] + 1.0f;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)
kernel.patch(torch.zeros(1))


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
