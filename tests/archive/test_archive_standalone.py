import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from archive import standalone
from archive.errors import ArchiveError
from archive.standalone import export_candidate
from archive.types import Record
from judge.settings import JudgeSettings
from judge.types import Status, Verdict
from tasks.experts import expert_kernels
from tasks.loader import suite_task

Make = Callable[..., Record]

# Runs in an interpreter without this repository: -I leaves out the working folder, and the package is blocked.
_COMPARE = """
import importlib.util, json, sys
for name in ("warpsmith", "judge", "archive", "tasks"):
    sys.modules[name] = None
def load(path):
    spec = importlib.util.spec_from_file_location("loaded", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
import torch
torch.manual_seed(0)
task, kernel = load(sys.argv[1]), load(sys.argv[2])
model, new = task.Model(*task.get_init_inputs()), kernel.ModelNew(*task.get_init_inputs())
new.load_state_dict(model.state_dict())
inputs = task.get_inputs()
with torch.no_grad():
    print(json.dumps((model(*inputs) - new(*inputs)).abs().max().item()))
"""


def run_isolated(*arguments: object) -> str:
    command = [sys.executable, "-I", "-c", _COMPARE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["softmax", "ssm_scan"])
def test_an_exported_kernel_runs_without_warpsmith_and_agrees_with_torch(
    make_record: Make, tmp_path: Path, name: str
) -> None:
    task, kernel = suite_task(name), expert_kernels(name)[0]
    record = make_record(2.5, 2.25, code=kernel.code, task_name=task.name, task_id=task.task_id)
    (tmp_path / "task.py").write_text(task.source)
    (tmp_path / "fast.py").write_text(export_candidate(record, task))
    assert json.loads(run_isolated(tmp_path / "task.py", tmp_path / "fast.py")) < 1e-4


KERNEL = """extern "C" {
void scale(const float* x, float* y, long long n, float by, int times) {  /* scale(wrong) { */
    for (long long i = 0; i < n; i++) { y[i] = x[i]; for (int t = 0; t < times; t++) y[i] *= by; }
}
}"""
MODEL = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        KERNEL.scale(x, y, x.numel(), 2, 3)
        return y
"""
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 8
def get_inputs(): return [torch.randn(100)]
def get_init_inputs(): return []
"""
FORMS = {
    "together": f"import torch, warpsmith\nK = warpsmith.load_cpp('''{KERNEL}''')\n{MODEL}",
    "apart, future first": (
        f'"""Doc."""\nfrom __future__ import annotations\nimport torch\nimport warpsmith\n'
        f"K = warpsmith.load_cpp('''{KERNEL}''')\n{MODEL}"
    ),
    "from": f"import torch\nfrom warpsmith import (\n    load_cpp as l,\n)\nK = l('''{KERNEL}'''); é = 1\n{MODEL}",
    "as": f"import torch; import warpsmith as w; K = w.load_cpp('''{KERNEL}''')\n{MODEL}",
    "inside": (
        "import torch\ndef f():\n    import warpsmith, os\n"
        f"    return warpsmith.load_cpp('''{KERNEL}''')\nK = f()\n{MODEL}"
    ),
    "names of the template's own": (
        f"import torch, warpsmith\nre = os = ctypes = Path = None\nK = warpsmith.load_cpp('''{KERNEL}''')\n{MODEL}"
    ),
}


@pytest.mark.parametrize("code", FORMS.values(), ids=FORMS.keys())
def test_every_way_to_import_warpsmith_is_replaced(make_record: Make, tmp_path: Path, code: str) -> None:
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "fast.py").write_text(export_candidate(make_record(1.5, code=code.replace("KERNEL.scale", "K.scale"))))
    assert json.loads(run_isolated(tmp_path / "task.py", tmp_path / "fast.py")) == 0.0


def test_the_heading_says_what_was_measured_and_stays_a_comment(make_record: Make) -> None:
    verdict = Verdict(
        status=Status.WIN,
        speedup=2.5,
        speedup_low=2.25,
        speedup_high=3.0,
        best_baseline="eager",
        hardware={"cpu": "Fast CPU\nimport os; os.abort()", "threads": "1"},
    )
    record = make_record(code=FORMS["together"], verdict=verdict, task_name="op\rimport sys")
    heading = export_candidate(record).split("\n\n")[0]
    assert all(line.startswith("# ") for line in heading.splitlines())
    for part in ("op import sys (op-id)", "win: 2.50x, 99% interval 2.25 to 3.00, against eager", "Fast CPU", "sha256"):
        assert part in heading
    assert f"{record.record_id} by policy" in heading


def test_a_candidate_that_failed_is_marked(make_record: Make) -> None:
    record = make_record(code="class ModelNew: pass\n", verdict=Verdict(status=Status.INCORRECT, message="off by 1"))
    assert "# speedup:   NOT VERIFIED (incorrect): off by 1\n" in export_candidate(record)


def test_code_without_warpsmith_is_exported_as_it_is(make_record: Make) -> None:
    code = "import torch\n\n\nclass ModelNew(torch.nn.Module): pass\n"
    assert export_candidate(make_record(1.0, code=code)).split("\n\n", 1)[1] == code


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", "holds no code"),
        ("class ModelNew(:", "is not Python"),
        ("import warpsmith as w\nw.load_cuda('')\n", "uses load_cuda of warpsmith"),
        ("from warpsmith import judge\n", "uses judge of warpsmith"),
        ("import warpsmith.more\n", "uses warpsmith.more of warpsmith"),
    ],
)
def test_what_cannot_stand_alone_is_refused_in_one_line(make_record: Make, code: str, message: str) -> None:
    with pytest.raises(ArchiveError, match=message) as caught:
        export_candidate(make_record(1.0, code=code))
    assert "\n" not in str(caught.value)


def test_exported_kernels_are_compiled_as_judged_ones_are() -> None:
    flags = re.search(r"flags = \((.*)\)", standalone._TEMPLATE.read_text())
    assert flags is not None
    assert tuple(re.findall(r'"(.*?)"', flags[1])) == JudgeSettings().cxx_flags
