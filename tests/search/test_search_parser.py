import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.operators import expert_completion
from search.parser import MAX_CODE_CHARACTERS, parse
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks

CODE = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""
OTHER = "class ModelNew:\n    other = 1\n"
CPP = "void f(float* x, long n) { x[0] = 1; }\n"
GOOD = f"""\
## Performance analysis
It is bound by memory.

## Algorithm design
One pass.

## Code
```python
{CODE}```
"""


def block(code: str, tag: str = "python") -> str:
    return f"```{tag}\n{code}```\n"


ACCEPTED = {
    "the protocol": GOOD,
    "trailing prose": GOOD + "\nThis kernel reads each value once.\n",
    "closing fence missing": GOOD.removesuffix("```\n"),
    "closing fence missing, prose after": GOOD.removesuffix("```\n") + "\nIt's fast because it reads x once.\n",
    "fences missing": f"## Code\n{CODE}",
    "fences missing, no heading": f"Here is the kernel:\n\n{CODE}",
    "fences missing, prose after": f"## Code\n{CODE}\nThat is all there is to it.\nI hope it helps.\n",
    "no language tag": block(CODE, ""),
    "other language tags": block(CODE, "py"),
    "wrong language tag": block(CODE, "cpp"),
    "tag in capitals": block(CODE, "Python"),
    "tag with attributes": block(CODE, "python title=kernel.py"),
    "tildes": f"~~~python\n{CODE}~~~\n",
    "longer fence": f"````python\n{CODE}````\n",
    "CRLF": GOOD.replace("\n", "\r\n"),
    "thinking": f"<think>\nMaybe\n{block(OTHER)}</think>\n{GOOD}",
    "thinking begun by the chat template": f"Maybe\n{block(OTHER)}</think>\n{GOOD}",
    "a C++ block first": f"{block(CPP, 'cpp')}\n{block(CODE)}",
    "a C++ block last": f"{block(CODE)}\n{block(CPP, 'cpp')}",
    "a usage example last": f"{block(CODE)}Use it so:\n{block('ModelNew()(x)' + chr(10))}",
    "a draft first": f"{block(OTHER)}Better:\n{block(CODE)}",
    "a broken draft after it": f"{block(CODE)}{block('class ModelNew(:' + chr(10))}",
    "two blocks, the first never closed": f"```python\n{OTHER}```python\n{CODE}```\n",
    "fence glued to the last line": f"```python\n{CODE.rstrip()}```\nDone.\n",
    "fence behind the heading": f"## Code: ```python\n{CODE}```\n",
    "indented by a list": "1. The kernel:\n   ```python\n"
    + "".join(f"   {x}\n" for x in CODE.split("\n")[:-1])
    + "   ```\n",
    "headings of another level and case": GOOD.replace("## ", "### ").replace("Code", "CODE"),
    "headings in bold with numbers": GOOD.replace("## Code", "**3. Code:**").replace("## Alg", "## 2. Alg"),
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_sloppy_answers_still_give_exactly_the_code(text: str) -> None:
    parsed = parse(text)
    assert parsed.reason == ""
    assert parsed.candidate is not None
    assert parsed.candidate.code.rstrip("\n") == CODE.rstrip("\n")


REJECTED = {
    "": "no code block",
    "I cannot do this.": "no code block",
    "## Code\n": "no code block",
    "## Code\n```python\n```\n": "no code block: it is empty",
    "<think>\nimport torch\nclass ModelNew: pass\n": "no code block: <think> does not end",
    block("x = 1\n\ny = = 2\n"): "code is not Python: line 3: invalid syntax",
    block("class ModelNew:\n  def f(:\n"): "code is not Python: line 2: invalid syntax",
    block("class Model: pass\n"): "no class ModelNew",
    block("def f():\n    class ModelNew: pass\n"): "no class ModelNew",
    block(CPP, "cpp"): "no Python: the code block is cpp; a Python file with ModelNew is wanted",
    block("x = '\0'\nclass ModelNew: pass\n"): "code is not Python: source code string cannot contain null bytes",
    block("class ModelNew: pass\n" + "#" * MAX_CODE_CHARACTERS): (
        f"the code has {MAX_CODE_CHARACTERS + 22} characters, more than {MAX_CODE_CHARACTERS}"
    ),
    block("class ModelNew: x = " + "(" * 5000 + "\n"): "code is not Python: line 1: too many nested parentheses",
    block("class ModelNew: x = a" + ".a" * 40_000 + "\n"): "code is not Python: ",
    # Cut in the middle of a body: dropping the last line would make another program of it.
    f"```python\n{CODE}    def extra(self, x):\n        return torch.relu(\n": (
        "code is not Python: line 8: '(' was never closed"
    ),
}


@pytest.mark.parametrize(("text", "reason"), REJECTED.items(), ids=[r[:40] for r in REJECTED.values()])
def test_what_is_no_candidate_is_rejected_with_its_reason(text: str, reason: str) -> None:
    parsed = parse(text)
    assert parsed.candidate is None
    assert parsed.reason.startswith(reason)
    assert "\n" not in parsed.reason


def test_the_sections_are_kept() -> None:
    parsed = parse(GOOD)
    assert (parsed.analysis, parsed.design, parsed.notes) == ("It is bound by memory.", "One pass.", ())


def test_without_headings_the_text_before_the_code_is_the_analysis() -> None:
    assert parse(f"It is bound by memory.\n\n{block(CODE)}Bye").analysis == "It is bound by memory."


def test_a_block_in_the_analysis_is_no_answer_when_there_is_one_under_code() -> None:
    text = f"## Performance analysis\nThe fast one was\n{block(OTHER)}\n## Code\n{block('class ModelNew(:' + chr(10))}"
    parsed = parse(text)
    assert parsed.candidate is None
    assert parsed.reason == "code is not Python: line 1: invalid syntax"
    assert OTHER in parsed.analysis


def test_what_was_tolerated_is_noted() -> None:
    assert parse(f"Here:\n{CODE}\nThat is all.\n").notes == ("code fence missing", "text after the code dropped")
    assert parse(ACCEPTED["closing fence missing"]).notes == ("closing fence missing",)
    assert parse(ACCEPTED["a draft first"]).notes == ("1 other code block ignored",)
    assert parse(ACCEPTED["thinking"]).notes == ("thinking left out",)


def test_a_comment_named_code_inside_a_block_is_no_heading() -> None:
    code = "# Code\n" + CODE
    assert parse(block(code)).candidate is not None
    assert parse(block(code)).candidate.code == code  # type: ignore[union-attr]


def test_blocks_are_never_joined() -> None:
    halves = CODE.split("\n\n\n")
    parsed = parse(block(halves[0] + "\n") + block(halves[1]))
    assert parsed.candidate is not None
    assert parsed.candidate.code == halves[1]


def test_parsing_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(block("class ModelNew:\n    x = '\\d'\n")).candidate is not None


def test_every_expert_answer_gives_back_its_code_and_analysis() -> None:
    kernels = [kernel for task in suite_tasks() for kernel in expert_kernels(task.name)]
    assert kernels
    for kernel in kernels:
        parsed = parse(expert_completion(kernel.code, kernel.analysis))
        assert parsed.candidate is not None, parsed.reason
        assert (parsed.candidate.code, parsed.analysis, parsed.notes) == (kernel.code, kernel.analysis, ())
        assert parsed.design


_LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=30)
_COMMENTS = st.lists(
    st.one_of(_LINES, st.sampled_from(["```", "```python", "~~~", "## Code", "````", "<b>"])), max_size=6
)
_PROSE = st.text(st.characters(codec="ascii", categories=["L", "N", "Zs"], include_characters=".,`*"), max_size=60)


@given(comments=_COMMENTS, analysis=st.lists(_PROSE, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_completion_gives_back_exactly_its_code_and_analysis(comments: list[str], analysis: list[str]) -> None:
    """Whatever the code says in strings and comments, fences and headings included."""
    body = "".join(f"# {line}\n{line!r}\n" for line in comments if "think>" not in line)
    docstring = "".join(
        f"{line}\n" for line in comments if "'" not in line and "\\" not in line and "think>" not in line
    )
    code = f"'''\n{docstring}'''\n{body}{CODE}"
    prose = ("It is: " + "\nso ".join(analysis).replace("```", "``")).strip()
    parsed = parse(expert_completion(code, prose))
    assert parsed.candidate is not None, parsed.reason
    assert (parsed.candidate.code, parsed.analysis) == (code, prose)


_FENCES = ["```", "```python\n", "~~~\n", "## Code\n", "<think>", "</think>"]
_CODES = [CODE, "import x\n", "class ModelNew", "'''", "    ", "\\", "("]
_ODD = ["\n", "\r\n", "\0", "\ud800", "\x0c", "\u2028"]
_PIECES = st.sampled_from(_FENCES + _CODES + _ODD)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=20)), max_size=30).map("".join))
@settings(max_examples=400, deadline=None)
def test_any_text_is_either_a_candidate_or_a_rejection(text: str) -> None:
    parsed = parse(text)
    assert (parsed.candidate is None) == bool(parsed.reason)
    assert "\n" not in parsed.reason
    f"{parsed.analysis}{parsed.design}{parsed.reason}".encode()  # nothing that a file cannot hold


HUGE = {
    "backticks": "`" * 1_000_000,
    "backticks and spaces": "``` " * 250_000,
    "fences": "```\n" * 250_000,
    "fences in one another": "```python\n" * 100_000,
    "spaces after a fence": "```" + " " * 1_000_000 + "`",
    "letters after a fence": "```" + "a" * 1_000_000 + "`",
    "spaces before a fence": " " * 1_000_000 + "```x`",
    "heading of spaces": "## code" + " " * 1_000_000 + "x",
    "hashes": "#" * 1_000_000,
    "thoughts": "<think>" * 150_000,
    "finished thoughts": "<think></think>" * 70_000,
    "headings": "## Code\n" * 120_000,
    "small blocks": "```\nclass ModelNew(:\n```\n" * 40_000,
    "cuts": "```python\nclass ModelNew: pass\n" + "not python\n" * 9_000,
}


@pytest.mark.timeout(60)  # quadratic behaviour would take hours
@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
def test_a_megabyte_of_anything_is_parsed(text: str) -> None:
    parsed = parse(text)
    assert (parsed.candidate is None) == bool(parsed.reason)
