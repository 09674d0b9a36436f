# expect: correct|runtime_error
# Way of cheating number 2: every library's pointer to clock_gettime overwritten
import torch

import warpsmith

SOURCE = r"""
#include <cstring>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <time.h>
static int frozen(clockid_t, struct timespec* t) { t->tv_sec = 1; t->tv_nsec = 0; return 0; }
static int visit(struct dl_phdr_info* info, size_t, void*) {
    for (int p = 0; p < info->dlpi_phnum; p++) {
        if (info->dlpi_phdr[p].p_type != PT_DYNAMIC) continue;
        const char* names = nullptr;
        Elf64_Sym* symbols = nullptr;
        Elf64_Rela* table = nullptr;
        size_t size = 0;
        for (auto d = (Elf64_Dyn*)(info->dlpi_addr + info->dlpi_phdr[p].p_vaddr); d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_STRTAB) names = (const char*)d->d_un.d_ptr;
            if (d->d_tag == DT_SYMTAB) symbols = (Elf64_Sym*)d->d_un.d_ptr;
            if (d->d_tag == DT_JMPREL) table = (Elf64_Rela*)d->d_un.d_ptr;
            if (d->d_tag == DT_PLTRELSZ) size = d->d_un.d_val;
        }
        if (!names || !symbols || !table || (uintptr_t)names < info->dlpi_addr) continue;
        for (size_t r = 0; r < size / sizeof(Elf64_Rela); r++) {
            if (strcmp(names + symbols[ELF64_R_SYM(table[r].r_info)].st_name, "clock_gettime")) continue;
            uintptr_t place = info->dlpi_addr + table[r].r_offset;
            if (mprotect((void*)(place & ~4095ul), 8192, PROT_READ | PROT_WRITE) == 0) *(void**)place = (void*)frozen;
        }
    }
    return 0;
}
extern "C" void patch(float* y) { dl_iterate_phdr(visit, nullptr); y[0] = 1; }
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
