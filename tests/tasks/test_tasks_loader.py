"""Task files read as text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import TaskError
from tasks.loader import load_task, parse_task, suite_task, variant_source
from tasks.types import DISTRIBUTIONS

KERNELBENCH = '''import torch
import torch.nn as nn

class Model(nn.Module):
    """
    Simple model that performs a ReLU activation.
    """
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

batch_size = 16
dim = batch_size * 4

def get_inputs():
    x = torch.randn(batch_size, dim)
    return [x]

def get_init_inputs():
    return []  # No special initialization inputs needed
'''

RICH = """ROWS: int = 8
SHAPE = [
    2,
    3,
]; COLS = ROWS * 2  # é: columns are counted in bytes
NAME = "rich"
LEVEL = 2
VARIANTS = {"wide": {"ROWS": 64}, "odd": {"ROWS": 7, "SHAPE": (5, 1)}}
HELD_OUT = ("odd",)
TOLERANCE = 1e-3
DISTRIBUTIONS = ("given", "large")
BACKWARD = True
BACKENDS = ["cpp", "cuda"]

class Model: ...
def get_inputs(scale=1): return []
def get_init_inputs(): return []
"""


def with_line(line: str) -> str:
    return f"{KERNELBENCH}\n{line}\n"


def test_kernelbench_file_loads_unchanged_with_name_and_level_of_its_path(tmp_path: Path) -> None:
    path = tmp_path / "level2" / "19_ReLU.py"
    path.parent.mkdir()
    path.write_text(KERNELBENCH)
    task = load_task(path)
    assert (task.name, task.level, task.source, task.path) == ("19_ReLU", 2, KERNELBENCH, str(path))
    assert [v.name for v in task.variants] == ["default"]
    assert task.distributions == DISTRIBUTIONS
    assert load_task(str(path)) == task


def test_optional_constants_are_read() -> None:
    task = parse_task(RICH)
    assert (task.name, task.level, task.tolerance, task.backward) == ("rich", 2, 1e-3, True)
    assert task.distributions == ("given", "large")
    assert task.backends == ("cpp", "cuda")
    assert [(v.name, v.held_out) for v in task.variants] == [("default", False), ("wide", False), ("odd", True)]
    assert task.variants[2].constants == {"ROWS": 7, "SHAPE": (5, 1)}


def test_folder_with_task_file_has_the_folders_name(tmp_path: Path) -> None:
    folder = tmp_path / "my_op"
    folder.mkdir()
    (folder / "task.py").write_text(KERNELBENCH)
    assert load_task(folder).name == "my_op"


def test_text_without_name_or_path_is_named_by_its_content() -> None:
    assert parse_task(KERNELBENCH).name == parse_task(KERNELBENCH).name
    assert parse_task(KERNELBENCH).name != parse_task(KERNELBENCH + "# other").name


def test_nothing_of_a_task_runs() -> None:
    assert parse_task(with_line("raise SystemExit(open('/nowhere'))")).level == 1


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("def (", 1, "not Python"),
        ("x = 1\n  y = 2", 2, "not Python"),
        ("x = '\0'", 1, "null bytes"),
        ("(" * 5000 + ")" * 5000, 1, "not Python"),
        ("", 1, "class Model"),
        (KERNELBENCH.replace("class Model", "class Net"), 1, "class Model"),
        (KERNELBENCH.replace("class Model(nn.Module)", "def Model()"), 1, "class Model"),
        (KERNELBENCH.replace("def get_inputs", "def inputs"), 1, "def get_inputs()"),
        (KERNELBENCH.replace("def get_init_inputs", "def init"), 1, "def get_init_inputs()"),
        (KERNELBENCH.replace("def get_inputs()", "def get_inputs(n)"), 17, "without arguments"),
        (with_line('NAME = "a/b"'), 24, "NAME"),
        (with_line("NAME = 3"), 24, "NAME"),
        (with_line("LEVEL = True"), 24, "whole number"),
        (with_line("LEVEL = 0"), 24, "whole number"),
        (with_line("LEVEL = int(1)"), 24, "not a literal"),
        (with_line("TOLERANCE = 0"), 24, "above 0"),
        (with_line("TOLERANCE = 1e999"), 24, "above 0"),
        (with_line('DISTRIBUTIONS = ("given", "huge")'), 24, "given, shifted, large, ties"),
        (with_line('DISTRIBUTIONS = "given"'), 24, "given, shifted, large, ties"),
        (with_line("DISTRIBUTIONS = ()"), 24, "given, shifted, large, ties"),
        (with_line('BACKENDS = ("rust",)'), 24, "cpp, cuda, triton"),
        (with_line("BACKWARD = 1"), 24, "True or False"),
        (with_line("VARIANTS = [1]"), 24, "dict of dicts"),
        (with_line('VARIANTS = {"a": {"dim": batch_size}}'), 24, "not a literal"),
        (with_line('VARIANTS = {"default": {"dim": 3}}'), 24, "default"),
        (with_line('VARIANTS = {"odd": {"batch_sise": 3}}'), 24, "did you mean batch_size?"),
        (with_line('VARIANTS = {"odd": {"dim": 1e999}}'), 24, "not a literal"),
        (with_line('VARIANTS = {"odd": {"dim": 3}}\nHELD_OUT = ("old",)'), 25, "did you mean odd?"),
        (with_line('HELD_OUT = ("odd",)'), 24, "no variant"),
        (with_line('HELD_OUT = "odd"'), 24, "tuple of names"),
    ],
)
def test_unusable_file_is_one_line_with_place_and_remedy(source: str, line: int, says: str) -> None:
    with pytest.raises(TaskError) as error:
        parse_task(source, "my/op.py")
    text = str(error.value)
    assert text.startswith(f"my/op.py:{line}: ")
    assert says in text
    assert ";" in text
    assert "\n" not in text


def test_unreadable_paths_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# ok\n# caf\xe9\n")
    (tmp_path / "huge.py").write_bytes(b"#" * (2 << 20))
    cases = {
        tmp_path / "none.py": "No such file",
        tmp_path: "no task.py",
        tmp_path / "latin.py": "latin.py:2: not UTF-8",
        tmp_path / "huge.py": "larger than",
        Path("/dev/null"): "not a regular file",
        Path("a\0b.py"): "cannot be read",
        "x" * 5000: "File name too long",
        KERNELBENCH: "cannot be read",
    }
    for path, says in cases.items():
        with pytest.raises(TaskError) as error:
            load_task(path)
        assert says in str(error.value)
        assert "\n" not in str(error.value)


def test_unknown_suite_name_names_the_nearest() -> None:
    for look_up in (load_task, suite_task):
        with pytest.raises(TaskError, match="did you mean 'softmax'"):
            look_up("sotfmax")
        with pytest.raises(TaskError, match=r"the suite has .*squared_relu"):
            look_up("zzz")


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "op.py").write_bytes(b"\xef\xbb\xbf" + KERNELBENCH.encode())
    assert load_task(tmp_path / "op.py").source == KERNELBENCH


def run_constants(source: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    lines = source.split("class Model")[0]
    exec(compile(lines, "task", "exec"), space)
    return space


def test_derived_constants_follow_a_variant_and_lines_keep_their_numbers() -> None:
    changed = variant_source(RICH, {"ROWS": 7, "SHAPE": (5, 1)})
    values = run_constants(changed)
    assert (values["ROWS"], values["SHAPE"], values["COLS"]) == (7, (5, 1), 14)
    assert values["NAME"] == "rich"
    before = [(type(n), getattr(n, "name", ""), n.lineno) for n in ast.parse(RICH).body]
    assert [(type(n), getattr(n, "name", ""), n.lineno) for n in ast.parse(changed).body] == before
    assert variant_source(RICH, {}) == RICH


def test_each_assignment_of_a_constant_is_replaced_and_nested_ones_are_not() -> None:
    source = "A = 1\nA = A + 1\ndef f():\n    A = 5\n    return A\nB = A"
    space: dict[str, Any] = {}
    exec(variant_source(source, {"A": 9}), space)
    assert (space["A"], space["B"], space["f"]()) == (9, 9, 5)


@pytest.mark.parametrize("value", [0, -3, 1.5, True, None, "a'\"\n", (1,), [1, [2]], {"a": (1, 2)}])
def test_literals_come_back_from_a_variant(value: Any) -> None:
    space: dict[str, Any] = {}
    exec(variant_source("A = (1 +\n     2) * 3; B = 4", {"A": value}), space)
    assert (space["A"], space["B"]) == (value, 4)
    assert type(space["A"]) is type(value)


def test_variant_of_an_unknown_constant_or_an_object_is_refused() -> None:
    with pytest.raises(TaskError, match="no top-level line B"):
        variant_source("A = 1", {"B": 2})
    with pytest.raises(TaskError, match="not a literal"):
        variant_source("A = 1", {"A": object()})


def test_shapes_of_a_gpu_replace_the_others_there_and_only_there() -> None:
    cpu = KERNELBENCH + 'N = 4\nVARIANTS = {"odd": {"N": 3}}\nHELD_OUT = ("odd",)\n'
    task = parse_task(cpu + 'GPU_VARIANTS = {"default": {"N": 1048576}, "odd": {"N": 1031}}')
    assert [(v.name, v.constants, v.held_out) for v in task.variants_on("cuda")] == [
        ("default", {"N": 1048576}, False),
        ("odd", {"N": 1031}, True),
    ]
    assert [v.constants for v in task.variants_on("cpu")] == [{}, {"N": 3}]
    assert parse_task(cpu).variants_on("cuda") == parse_task(cpu).variants


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('GPU_VARIANTS = {"odd": {"N": 3}}', 'the first entry must be "default"'),
        ('GPU_VARIANTS = {"default": {"M": 3}}', "replaces M, which is no constant"),
        ("GPU_VARIANTS = 3", "a dict of dicts"),
    ],
)
def test_wrong_shapes_of_a_gpu_are_named(line: str, words: str) -> None:
    with pytest.raises(TaskError) as error:
        parse_task(KERNELBENCH + "N = 4\n" + line)
    assert words in str(error.value)
