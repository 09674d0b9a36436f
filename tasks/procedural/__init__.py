"""Tasks without end: operator graphs drawn at random, their PyTorch text, and correct kernels under many schedules."""
