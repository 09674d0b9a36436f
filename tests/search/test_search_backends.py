"""Prompts for CUDA: what they say, what they show, and how long they are."""

import ast
import re
from collections.abc import Callable

import numpy as np
import pytest

from archive.types import Record
from judge.load_cuda import parse_kernels
from learner.pretrained import prepare_model
from search.backends import BACKENDS, backend_of, of_backend
from search.errors import SearchError
from search.operators import build_prompt, expert_completion
from search.parser import parse
from search.settings import SearchSettings
from search.types import Prompt
from tasks.experts import expert_kernels
from tasks.loader import parse_task, suite_task, suite_tasks
from tasks.types import Task

Make = Callable[..., Record]
CUDA = "kernels = warpsmith.load_cuda(r'')\nclass ModelNew: name = {!r}\n"
CPP = "kernel = warpsmith.load_cpp(r'')\nclass ModelNew: name = {!r}\n"


def ask(task: Task, records: list[Record], *, count: Callable[[str], int] = len, **settings: object) -> Prompt:
    chosen = SearchSettings.model_validate({"max_prompt_tokens": 100_000, "backend": "cuda", **settings})
    return build_prompt(task, records, chosen, np.random.default_rng(0), prompt_id="p", count_tokens=count)


def text_of(prompt: Prompt) -> str:
    return prompt.messages[0]["content"]


def test_a_cuda_prompt_asks_for_cuda_at_the_gpu_shapes() -> None:
    text = text_of(ask(suite_task("softmax"), [], hardware="an NVIDIA H200"))
    assert "for an NVIDIA H200, with a kernel in CUDA C++." in text
    assert "ROWS = 8192\nCOLS = 2048" in text
    assert "ROWS = 131072, COLS = 80" in text
    for hidden in ("2053", "4099", "ROWS = 512", "GPU_VARIANTS", "load_cpp", "OpenMP"):
        assert hidden not in text


@pytest.mark.parametrize("task", suite_tasks(), ids=lambda task: task.name)
def test_cuda_prompts_of_the_suite_name_no_held_out_variant(task: Task) -> None:
    text = text_of(ask(task, []))
    for variant in task.variants_on("cuda")[1:]:
        stated = ", ".join(f"{name} = {value!r}" for name, value in variant.constants.items())
        assert (stated in text) != variant.held_out


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=lambda backend: backend.name)
def test_the_template_is_a_candidate_of_its_backend(backend: object) -> None:
    template = backend.template  # type: ignore[attr-defined]
    assert parse(f"```python\n{template}\n```").candidate is not None
    assert backend_of(template) == backend.name  # type: ignore[attr-defined]


def test_the_cuda_template_declares_what_it_calls() -> None:
    template = BACKENDS["cuda"].template
    source = re.search(r"r'''(.*?)'''", template, re.DOTALL)
    assert source is not None
    kernels = parse_kernels(source[1])
    calls = [node for node in ast.walk(ast.parse(template)) if isinstance(node, ast.Call)]
    (call,) = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in kernels]
    assert len(call.args) == 2 + len(kernels["f"])  # grid and block come first


def test_the_template_is_left_out_where_a_correct_exemplar_shows_the_form(make_record: Make) -> None:
    task, template = suite_task("softmax"), BACKENDS["cuda"].template
    assert template in text_of(ask(task, []))
    assert template not in text_of(ask(task, [make_record(2.0, code=CUDA.format("a"))]))


def test_exemplars_of_another_language_are_not_shown(make_record: Make) -> None:
    records = [make_record(2.0, "cpp", code=CPP.format("a")), make_record(1.5, "cuda", code=CUDA.format("b"))]
    task = suite_task("softmax")
    assert ask(task, records).exemplar_ids == ("cuda",)
    assert ask(task, records, backend="cpp").exemplar_ids == ("cpp",)
    assert ask(task, records, operator="evolve").exemplar_ids in ((), ("cuda",))


def test_code_tells_its_language_and_code_without_a_kernel_fits_every_prompt(make_record: Make) -> None:
    assert [backend_of(code) for code in (CPP, CUDA, "@triton.jit\ndef f(): ...", "x = 1")] == [
        "cpp",
        "cuda",
        "triton",
        "",
    ]
    plain = make_record(1.0, code="class ModelNew: pass\n")
    assert of_backend([plain], "cpp") == of_backend([plain], "cuda") == [plain]
    assert of_backend([make_record(1.0, extra={"backend": "cuda"})], "cpp") == []


def test_a_task_without_the_backend_is_refused() -> None:
    source = suite_task("softmax").source.replace('BACKENDS = ("cpp", "cuda", "triton")', 'BACKENDS = ("cpp",)')
    with pytest.raises(SearchError, match='add "cuda" to its BACKENDS'):
        ask(parse_task(source, "softmax.py"), [])


def test_the_machine_is_named_by_the_settings_else_by_the_records(make_record: Make) -> None:
    task = suite_task("softmax")
    gpu = make_record(1.5, code=CUDA.format("a"))
    verdict = gpu.verdict.model_copy(update={"hardware": {"gpu": "NVIDIA Test", "cpu": "Test CPU"}})
    shown = [gpu.model_copy(update={"verdict": verdict})]
    assert "for NVIDIA Test, with" in text_of(ask(task, shown))
    assert "for mine, with" in text_of(ask(task, shown, hardware="mine"))


def test_short_prompts_keep_task_reference_and_exemplars(make_record: Make) -> None:
    task, records = suite_task("softmax"), [make_record(1.5, code=CUDA.format("a"))]
    full, short = text_of(ask(task, records)), text_of(ask(task, records, short_prompts=True))
    assert [line for line in short.splitlines() if line.startswith("# ")] == [
        "# Task",
        "# Reference code",
        "# Previous implementations",
        "# Protocol",
    ]
    assert short.startswith(full[: full.index("# Protocol")])


def test_cuda_prompts_of_common_tasks_fit_into_900_tokens_of_the_smallest_policy(make_record: Make) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepare_model("tiny-random"))

    def count(text: str) -> int:
        chat = [{"role": "user", "content": text}]
        return len(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"])

    for name in ("squared_relu", "softmax", "rms_norm_scale"):
        kernels = expert_kernels(name, "cuda")
        plain = next(kernel for kernel in kernels if kernel.quality == "plain")
        one = ask(suite_task(name), [make_record(1.5, code=plain.code)], count=count, max_prompt_tokens=900)
        assert one.operator == "contrast"
        if name == "squared_relu":
            two = [make_record(float(i), code=plain.code + f"X = {i}\n") for i in (1, 8)]
            short = ask(suite_task(name), two, count=count, short_prompts=True, max_prompt_tokens=900)
            assert len(short.exemplar_ids) == 2


def test_an_answer_for_cuda_is_read_back_whole_and_describes_its_kernel() -> None:
    for name in ("softmax", "square_matmul"):
        for kernel in expert_kernels(name, "cuda"):
            text = expert_completion(kernel.code, kernel.analysis)
            parsed = parse(text)
            assert parsed.candidate is not None
            assert (parsed.candidate.code, parsed.analysis) == (kernel.code, kernel.analysis)
            assert parsed.design.startswith("A CUDA kernel ")
            assert "C++" not in parsed.design
            assert ("shared memory" in parsed.design) == ("__shared__" in kernel.code)
