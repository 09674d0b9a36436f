import ast
from collections.abc import Callable

import numpy as np
import pytest

from archive.types import Record
from search.errors import SearchError
from search.operators import build_prompt, expert_completion
from search.prompts import fenced, reference_code
from search.settings import SearchSettings
from search.types import Prompt
from tasks.loader import parse_task, suite_tasks
from tasks.types import Task

Make = Callable[..., Record]

SOURCE = '''\
import torch

LEVEL = 2
ROWS = 128
COLS = 64  # a short row
# Shapes of the judge: 977 rows too.
VARIANTS = {
    "tall": {"ROWS": 4096, "COLS": 16},
    "odd": {"ROWS": 977, "COLS": 1031},
}
HELD_OUT = ("odd",)
TOLERANCE = 1e-5


class Model(torch.nn.Module):
    """Doubles."""

    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
'''


@pytest.fixture
def task() -> Task:
    return parse_task(SOURCE, "double.py")


def ask(task: Task, records: list[Record], *, count: Callable[[str], int] = len, **settings: object) -> Prompt:
    chosen = SearchSettings.model_validate({"max_prompt_tokens": 100_000, **settings})
    return build_prompt(task, records, chosen, np.random.default_rng(0), prompt_id="p1", count_tokens=count)


def text_of(prompt: Prompt) -> str:
    (message,) = prompt.messages
    assert message["role"] == "user"
    return message["content"]


def test_sections_come_in_the_order_of_the_protocol(task: Task, make_record: Make) -> None:
    text = text_of(ask(task, [make_record(1.5), make_record(3.25)]))
    titles = [line for line in text.splitlines() if line.startswith("# ")]
    assert titles == [
        "# Task",
        "# Reference code",
        "# Previous implementations",
        "# Protocol",
        "# Requirements",
        "# Restrictions",
    ]
    protocol = text[text.index("# Protocol") : text.index("# Requirements")]
    assert [line for line in protocol.splitlines() if line.startswith("## ")] == [
        "## Performance analysis",
        "## Algorithm design",
        "## Code",
    ]


def test_exemplars_are_shown_with_code_and_speedup_the_slowest_first(task: Task, make_record: Make) -> None:
    fast, slow = make_record(3.254, "fast"), make_record(0.5, "slow")
    prompt = ask(task, [fast, slow])
    text = text_of(prompt)
    assert prompt.exemplar_ids == ("slow", "fast")
    assert prompt.operator == "contrast"
    assert text.index("Speedup 0.50x") < text.index("'slow'") < text.index("Speedup 3.25x") < text.index("'fast'")
    assert "Test CPU (2 threads)" in text


def test_held_out_shapes_appear_nowhere_and_shown_ones_do(task: Task) -> None:
    text = text_of(ask(task, []))
    for hidden in ("977", "1031", "odd", "HELD_OUT", "VARIANTS", "TOLERANCE", "1e-05"):
        assert hidden not in text
    for visible in ("ROWS = 128", "COLS = 64  # a short row", "ROWS = 4096, COLS = 16", "return x * 2"):
        assert visible in text


@pytest.mark.parametrize("task", suite_tasks(), ids=lambda task: task.name)
def test_prompts_of_the_suite_name_no_held_out_variant(task: Task) -> None:
    text = text_of(ask(task, []))
    assert "HELD_OUT" not in text
    for variant in task.variants:
        stated = ", ".join(f"{name} = {value!r}" for name, value in variant.constants.items())
        if variant.constants:
            assert (stated in text) != variant.held_out


def test_the_reference_code_still_does_what_the_file_does(task: Task) -> None:
    full, shown = ast.parse(task.source), ast.parse(reference_code(task.source))
    kept = [ast.dump(node) for node in full.body if "LEVEL VARIANTS HELD_OUT TOLERANCE".find(_target(node)) < 0]
    assert [ast.dump(node) for node in shown.body] == kept


def _target(node: ast.stmt) -> str:
    return node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else "?"


def test_a_constant_that_shares_its_line_survives() -> None:
    assert reference_code('ROWS = 4; HELD_OUT = ("odd",)\nx = ROWS\n') == "ROWS = 4\nx = ROWS"


def test_line_ends_of_any_kind_hide_the_right_lines() -> None:
    assert reference_code('A = "\x0c\u2028"\r\nHELD_OUT = ("odd",)\r\nB = 2\r\n').split("\n")[-1] == "B = 2"


@pytest.mark.parametrize("settings", [{"operator": "vanilla"}, {"sampler": "none"}, {"exemplars": 0}])
def test_vanilla_prompts_show_no_exemplar_and_say_so(
    task: Task, make_record: Make, settings: dict[str, object]
) -> None:
    prompt = ask(task, [make_record(1.5), make_record(2.5)], **settings)
    assert (prompt.operator, prompt.exemplar_ids) == ("vanilla", ())
    assert "Previous implementations" not in text_of(prompt)
    assert text_of(prompt) == text_of(ask(task, [make_record(1.5)], **settings))


def test_exemplars_are_cut_until_the_prompt_fits_the_fastest_stay_longest(task: Task, make_record: Make) -> None:
    records = [make_record(1.0), make_record(4.0), make_record(16.0)]
    lengths = {n: len(text_of(ask(task, records[3 - n :] or records, exemplars=n))) for n in range(4)}
    for n in range(3, -1, -1):
        prompt = ask(task, records, exemplars=3, max_prompt_tokens=lengths[n])
        assert prompt.exemplar_ids == tuple(r.record_id for r in records[3 - n :])
        assert prompt.operator == ("contrast" if n else "vanilla")


def test_a_short_slow_exemplar_is_better_than_none(task: Task, make_record: Make) -> None:
    slow, fast = make_record(1.0), make_record(4.0, code="class ModelNew: x = '" + "y" * 5000 + "'\n")
    room = len(text_of(ask(task, [slow])))
    assert ask(task, [slow, fast], max_prompt_tokens=room).exemplar_ids == (slow.record_id,)


def test_a_task_that_does_not_fit_is_refused_with_sizes_and_remedy(task: Task) -> None:
    length = len(text_of(ask(task, [])))
    with pytest.raises(SearchError) as caught:
        ask(task, [], max_prompt_tokens=64)
    assert str(length) in str(caught.value)
    assert "max_prompt_tokens is 64" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_without_cpp_is_refused() -> None:
    with pytest.raises(SearchError, match="prompts ask for C"):
        ask(parse_task(SOURCE + 'BACKENDS = ("cuda",)\n', "double.py"), [])


def test_a_fence_inside_code_does_not_end_the_block() -> None:
    assert fenced("x = '''\n```\n'''").startswith("````python\n")


def test_expert_completion_describes_the_kernel_it_holds() -> None:
    code = "SOURCE = r'''\n#pragma omp parallel for\nextern \"C\" void twice(const float* x, long n) {}\n'''\n"
    text = expert_completion(code, "Bound by memory.")
    design = text[text.index("## Algorithm design") : text.index("## Code")]
    assert "twice(const float* x, long n)" in design
    assert "OpenMP" in design
    assert "SIMD" not in design
