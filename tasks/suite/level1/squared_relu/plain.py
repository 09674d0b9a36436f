"""Three memory-bound passes in eager. This kernel does each element with a branch in one row loop; it saves the
temporaries, but leaves vectorisation to the compiler."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void squared_relu(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < cols; c++) {
            float v = x[r * cols + c];
            if (v < 0)
                y[r * cols + c] = 0;
            else
                y[r * cols + c] = 0.5f * v * v;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.squared_relu(x, y, x.shape[0], x.shape[1])
        return y
