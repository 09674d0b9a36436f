"""Marks on text: what earns one, and the honest code that must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from judge.static_rules import NO_CUSTOM_KERNEL, static_flags

KERNEL = "import warpsmith\nkernel = warpsmith.load_cpp(S)\n"
CALL = "class ModelNew:\n    def forward(self, x):\n        kernel.f(x)\n        return x\n"


@pytest.mark.parametrize(
    "code",
    [
        KERNEL + CALL,
        "try:\n    kernel = load_inline(name='k')\nexcept RuntimeError:\n    kernel = None\n" + CALL,
        "class ModelNew:\n    def __init__(self):\n        pass\n    def forward(self, x):\n        load_cpp(S).f(x)\n",
        KERNEL + CALL + "# second pass: exec eval time.time()\n",
        '"""we try: fused, threading, gc"""\n' + KERNEL + CALL,
        "@triton.jit\ndef kernel(x):\n    pass\nclass ModelNew:\n    def forward(self, x):\n        kernel[(1,)](x)\n",
        KERNEL + "class ModelNew:\n    def forward(self, x):\n        for run in (kernel.a, kernel.b):\n"
        "            best = {1: run}\n        best[1](x)\n        return x\n",
        KERNEL + "class ModelNew:\n    def forward(self, x):\n        return [run(x) for run in [kernel.a]][0]\n",
        "class ModelNew:\n    def __init__(self):\n        self.k = warpsmith.load_cpp(S)\n"
        "    def forward(self, x):\n        self.k.f(x)\n",
    ],
)
def test_honest_code_is_not_marked(code: str) -> None:
    """EVALUATORS.md section 4: the false alarms of KernelBench's checker."""
    assert static_flags(code) == ()


@pytest.mark.parametrize(
    ("code", "mark"),
    [
        ("class ModelNew:\n    def forward(self, x):\n        return x @ x\n", NO_CUSTOM_KERNEL),
        (
            "S = '__global__ load_inline'\nclass ModelNew:\n    def forward(self, x):\n        return x\n",
            NO_CUSTOM_KERNEL,
        ),
        (KERNEL + "class ModelNew:\n    def forward(self, x):\n        return x\n", NO_CUSTOM_KERNEL),
        (KERNEL + CALL + "exec(s)\n", "runs text as code"),
        (KERNEL + CALL + "import gc\n", "looks into the interpreter"),
        (KERNEL + CALL + "from threading import Thread\n", "starts threads or processes"),
        (KERNEL + CALL + "import time\ntime.perf_counter = f\n", "touches clocks"),
        (KERNEL + CALL + "m = torch.compile(m)\n", "mentions torch.compile"),
    ],
)
def test_what_earns_a_mark(code: str, mark: str) -> None:
    assert mark in static_flags(code)


def test_text_that_is_no_python_has_no_marks() -> None:
    assert static_flags("def (") == ()
    assert static_flags("\0") == ()


def test_the_experts_and_controls_count_as_kernels() -> None:
    root = Path(__file__).parents[2]
    files = [*root.glob("tasks/suite/*/*/good.py"), *root.glob("tests/redteam/controls/*.py")]
    assert len(files) >= 10
    for path in files:
        assert NO_CUSTOM_KERNEL not in static_flags(path.read_text()), path
