"""Tasks of other projects' folders and of packages."""

import json
import sys
from pathlib import Path

import pytest

from tasks.errors import TaskError
from tasks.loader import suite_tasks, variant_source
from tasks.sources import load_tasks

KERNELBENCH = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


N = 8


def get_inputs():
    return [torch.arange(N, dtype=torch.float32)]


def get_init_inputs():
    return [3.0]
"""

ROBUST = """\
import torch


def forward_fn(x, w, eps=1e-8):
    return x * w + eps


class Model(torch.nn.Module):
    def __init__(self, features: int, eps: float = 0.5):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((features,), 2.0))
        self.eps = eps

    def forward(self, x, fn=forward_fn):
        return fn(x, self.w, self.eps)


def get_inputs(batch: int = 4, features: int = 3):
    return [torch.ones(batch, features)]


input_names = ["x"]
"""

SETTINGS = {
    "single_init_configs": [{}],
    "single_input_configs": [{"batch": 2}],
    "single_shared_configs": [{"features": 5}],
    "multi_init_configs": [{"eps": 0.25}, {}],
    "multi_input_configs": [{"batch": 7}],
    "multi_shared_configs": [{"features": 5}, {"features": 6}],
}


def run(source: str) -> tuple[list[int], float]:
    """The shape and the first value of the task's result."""
    names: dict = {"__name__": "task"}
    exec(compile(source, "task", "exec"), names)
    result = names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]())
    return list(result.shape), float(result.detach().flatten()[-1])


@pytest.fixture
def robust(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks" / "scale"
    folder.mkdir(parents=True)
    (folder / "func_forward.py").write_text(ROBUST)
    (folder / "config_forward.json").write_text(json.dumps(SETTINGS))
    return folder


def test_folders_of_kernelbench(tmp_path: Path) -> None:
    for level, name in ((1, "19_ReLU"), (1, "20_Scale"), (2, "1_Fused")):
        path = tmp_path / f"level{level}" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(KERNELBENCH.replace("N = 8", f"N = {len(name)}"))
    (tmp_path / "level2" / "helper.py").write_text("x = 1\n")
    tasks = load_tasks(str(tmp_path))
    assert [(t.name, t.level) for t in tasks] == [("19_ReLU", 1), ("20_Scale", 1), ("1_Fused", 2)]
    assert run(tasks[0].source) == ([7], 18.0)
    assert [t.name for t in load_tasks(str(tmp_path / "level2"))] == ["1_Fused"]


def test_a_folder_of_robust_kbench(robust: Path) -> None:
    (task,) = load_tasks(str(robust.parent))
    assert (task.name, task.backward) == ("scale", False)
    assert run(task.source) == ([2, 5], 2.5)
    assert [v.name for v in task.variants] == ["default", "settings1", "settings2", "settings3", "settings4"]
    assert [v.held_out for v in task.variants] == [False, False, False, False, True]
    results = [run(variant_source(task.source, v.constants)) for v in task.variants[1:]]
    assert results == [([7, 5], 2.25), ([7, 6], 2.25), ([7, 5], 2.5), ([7, 6], 2.5)]


def test_the_gradient_is_a_task_of_its_own(robust: Path) -> None:
    (robust / "config_backward.json").write_text(json.dumps({**SETTINGS, "single_input_configs": [{"batch": 3}]}))
    forward, backward = load_tasks(str(robust))
    assert (forward.name, backward.name, backward.backward) == ("scale", "scale_backward", True)
    assert run(backward.source) == ([3, 5], 2.5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config_forward.json", "{", "config_forward.json: cannot be read"),
        ("config_forward.json", '{"single_init_configs": 3}', "single_init_configs is not a list of settings"),
        ("config_forward.json", "{}", "Model needs features"),
        ("func_forward.py", "x = (", "cannot be read as Python"),
        ("func_forward.py", "x = 1", "no class Model"),
    ],
)
def test_a_faulty_folder_of_robust_kbench_is_told_in_one_line(robust: Path, name: str, text: str, message: str) -> None:
    (robust / name).write_text(text)
    with pytest.raises(TaskError, match=message) as caught:
        load_tasks(str(robust))
    assert "\n" not in str(caught.value)


def test_a_package_brings_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme.py").write_text(
        "from pathlib import Path\n"
        "from tasks.loader import parse_task\n"
        "HERE = Path(__file__).parent\n"
        "def ops():\n"
        "    return [parse_task((HERE / 'ops' / 'a.py').read_text()), HERE / 'ops']\n"
        "def broken():\n"
        "    raise RuntimeError('no data')\n"
        "nothing = 3\n"
    )
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "a.py").write_text(KERNELBENCH)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[warpsmith.tasks]\nacme-ops = acme:ops\nacme-broken = acme:broken\nacme-nothing = acme:nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        tasks = load_tasks("acme-ops")
        assert [t.source for t in tasks] == [KERNELBENCH, KERNELBENCH]
        with pytest.raises(TaskError, match=r"the task package acme failed: RuntimeError\('no data'\)"):
            load_tasks("acme-broken")
        with pytest.raises(TaskError, match="the task package acme gives int"):
            load_tasks("acme-nothing")
    finally:
        sys.modules.pop("acme", None)


def test_the_suite_by_name_and_what_is_not_there(tmp_path: Path) -> None:
    assert load_tasks("suite") == list(suite_tasks())
    assert [t.name for t in load_tasks("softmax")] == ["softmax"]
    with pytest.raises(TaskError, match="no task of the suite"):
        load_tasks("sofmax")
    with pytest.raises(TaskError, match="holds no task file"):
        load_tasks(str(tmp_path))


def test_generated_tasks_by_name() -> None:
    tasks = load_tasks("procedural:test:5:100")
    assert len({task.task_id for task in tasks}) == 5 and tasks == load_tasks("procedural:test:5:100")
    assert not {t.task_id for t in tasks} & {t.task_id for t in load_tasks("procedural:train:5:100")}
    for wrong in ("procedural:test", "procedural:test:x", "procedural:test:0", "procedural:dev:3"):
        with pytest.raises(TaskError):
            load_tasks(wrong)
