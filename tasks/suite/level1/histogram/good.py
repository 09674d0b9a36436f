"""Where the same number comes twice in a row, the second addition waits until the first is stored. Four tables, taken
in turns, spread these accesses, and counters of 32 bits keep all tables in the L1 cache; they are added up at the
end."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void histogram(const long* x, long* y, long n) {
    unsigned a[256] = {}, b[256] = {}, c[256] = {}, d[256] = {};
    long i = 0;
    for (; i + 4 <= n; i += 4) {
        long p = x[i], q = x[i + 1], r = x[i + 2], s = x[i + 3];
        a[p]++;
        b[q]++;
        c[r]++;
        d[s]++;
    }
    for (; i < n; i++) a[x[i]]++;
    for (i = 0; i < 256; i++) y[i] = (long)a[i] + b[i] + c[i] + d[i];
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(256, dtype=torch.int64)
        kernel.histogram(x, y, len(x))
        return y
