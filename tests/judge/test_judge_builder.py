"""torch's load_inline: built in the builder's jail, loaded in the strict ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judge.api import Judge
from judge.extension_builds import needs_builder, summarise_build
from judge.process import ForeignFailure
from judge.products import MAX_FILES, keep_products
from judge.settings import JudgeSettings
from judge.types import Candidate
from tasks.loader import load_task

INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* a = x.data_ptr<float>();
    float* b = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); i++) { float v = a[i] > 0 ? a[i] : 0; b[i] = v * v * 0.5f; }
    return y;
}
"""
try:
    module = load_inline(name="squared", cpp_sources=SOURCE, functions=["forward"], verbose=True)
except RuntimeError:
    module = None


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x)
'''


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_extension_with_torchs_headers_is_built_once_and_judged() -> None:
    with Judge(JudgeSettings(total_seconds=240.0, build_seconds=400.0)) as judge:
        verdict = judge.judge(load_task("squared_relu"), Candidate(code=INLINE))
        assert verdict.is_correct, verdict.message
        assert "no custom kernel" not in verdict.flags
        began = time.monotonic()
        again = judge.judge(load_task("squared_relu"), Candidate(code=INLINE))
        assert again.is_correct and again.phase_seconds["compile"] < 1.0 < verdict.phase_seconds["compile"]
        assert time.monotonic() - began < 60


def test_triton_hashes_the_same_platform_in_both_jails(tmp_path: Path) -> None:
    # Its launcher's key holds platform.architecture(), which differs where the command `file` cannot be started.
    def seen(by: str, path: str) -> bytes:
        code = f"import pathlib, platform, judge.extension_builds as e; e.{by}(pathlib.Path({str(tmp_path)!r})); "
        code += "print(platform.machine(), platform.system(), platform.architecture())"
        environment = {**os.environ, "PATH": path}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout

    assert seen("record_into", os.environ["PATH"]) == seen("load_from", "/nowhere")


def test_only_candidates_that_speak_of_them_go_through_the_builder() -> None:
    assert needs_builder(INLINE) and needs_builder("import triton")
    assert not needs_builder("import warpsmith\nk = warpsmith.load_cpp(SOURCE)")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("FAILED: main.o\n/jail/x/main.cpp:7:8: error: 'z' was not declared\nninja: stopped", "main.cpp line 7"),
        ('/jail/x/cuda.cu(12): error: identifier "q" is undefined\n1 error detected', "cuda.cu line 12: identifier"),
        ("ninja: error: something else", "something else"),
    ],
)
def test_errors_of_a_build_are_short_and_name_the_line(log: str, said: str) -> None:
    assert said in summarise_build(log)


def test_products_are_plain_files_only_and_their_index_names_the_new_place(tmp_path: Path) -> None:
    scratch, target = tmp_path / "scratch", tmp_path / "kept"
    (scratch / "triton" / "ab").mkdir(parents=True)
    (scratch / "extensions").mkdir()
    (scratch / "triton" / "ab" / "__grp__k.json").write_text(f'{{"child_paths": {{"k": "{scratch}/triton/ab/k"}}}}')
    (scratch / "triton" / "ab" / "k").write_text("code")
    (scratch / "extensions" / "link.so").symlink_to("/etc/passwd")
    (scratch / "elsewhere").write_text("not a product")
    (scratch / "triton" / "outside").symlink_to("/etc")
    assert keep_products(scratch, target) == sum(path.stat().st_size for path in (scratch / "triton" / "ab").iterdir())
    assert sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()) == [
        "triton/ab/__grp__k.json",
        "triton/ab/k",
    ]
    assert str(target) in (target / "triton" / "ab" / "__grp__k.json").read_text()


def test_too_many_products_are_refused(tmp_path: Path) -> None:
    (tmp_path / "scratch" / "triton").mkdir(parents=True)
    for number in range(MAX_FILES + 1):
        (tmp_path / "scratch" / "triton" / str(number)).touch()
    with pytest.raises(ForeignFailure, match="files"):
        keep_products(tmp_path / "scratch", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
