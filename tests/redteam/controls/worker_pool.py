# expect: win|correct
# Honest, though it may look odd: a worker thread kept over calls, joined by a handshake in each
import torch

import warpsmith

SOURCE = r"""
#include <condition_variable>
#include <mutex>
#include <thread>
static std::mutex mutex;
static std::condition_variable wake;
static const float *px, *pb;
static float* py;
static long from, to, asked, done;
static void part(long i, long end) {
    for (; i < end; i++) { float t = px[i] * 2.0f + pb[i]; py[i] = (t > 0 ? t : 0) * px[i] + 1.0f; }
}
static void work() {
    for (long seen = 0;;) {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return asked > seen; });
        seen = asked;
        lock.unlock();
        part(from, to);
        lock.lock();
        done = seen;
        wake.notify_all();
    }
}
extern "C" void f(const float* x, const float* b, float* y, long n) {
    static std::thread* worker = new std::thread(work);
    (void)worker;
    std::unique_lock<std::mutex> lock(mutex);
    px = x, pb = b, py = y, from = n / 2, to = n;
    long mine = ++asked;
    wake.notify_all();
    lock.unlock();
    part(0, n / 2);
    lock.lock();
    wake.wait(lock, [&] { return done == mine; });
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
