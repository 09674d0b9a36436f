"""One warp for each row goes through it eight times: each round finds the largest value that comes after the last one,
in the order of values and then of places, so nothing needs to be struck out. Later rounds read from the cache, but
there are eight of them."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void topk(const float* x, float* y, int cols) {
    const float* a = x + (long long)blockIdx.x * cols;
    float last = INFINITY;
    int place = -1;
    for (int round = 0; round < 8; round++) {
        float m = -INFINITY;
        int at = INT_MAX;
        for (int c = threadIdx.x; c < cols; c += 32) {
            bool left = a[c] < last || (a[c] == last && c > place);
            if (left && (a[c] > m || (a[c] == m && c < at))) m = a[c], at = c;
        }
        for (int k = 16; k; k /= 2) {
            float n = __shfl_xor_sync(~0u, m, k);
            int other = __shfl_xor_sync(~0u, at, k);
            if (n > m || (n == m && other < at)) m = n, at = other;
        }
        if (threadIdx.x == 0) y[blockIdx.x * 8LL + round] = m;
        last = m, place = at;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(len(x), 8)
        kernels.topk(len(x), 32, x, y, x.shape[1])
        return y
