"""load_cpp: declarations read from the source, arguments checked before the call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from judge.errors import SignatureError
from judge.load_cpp import CompileError, load_cpp, parse_functions, summarise_errors

SOURCE = r"""
#include <cstdint>
#include <cstring>
// extern "C" void commented(int* a) {}
/* extern "C" void also_commented(int* a) {} */
#define MACRO(x) do { x; } while (0)
static float twice(float x) { return x * 2; }
extern "C" void scale(const float* __restrict__ x, float* y, long n, float s) {
    for (long i = 0; i < n; i++) { y[i] = twice(x[i]) * s; }
}
extern "C" {
void kinds(const double *d, std::int64_t* l, int32_t* i, uint8_t* u, bool* b, void* any, unsigned count,
           double s, bool f) {
    if (count) { l[0] = count + f; i[0] = (int)s; }
}
int nothing(void) { return 3; }
}
extern "C" void declared_only(int n);
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _private_cache(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("WARPSMITH_HOME", str(home))


def test_declarations_are_read_past_comments_blocks_and_qualifiers() -> None:
    functions = parse_functions(SOURCE)
    assert set(functions) == {"scale", "kinds", "nothing"}
    assert [p.declared for p in functions["scale"]] == ["float*", "float*", "long", "float"]
    assert [p.name for p in functions["scale"]] == ["x", "y", "n", "s"]
    assert [p.pointee for p in functions["kinds"]] == [
        "float64", "int64", "int32", "uint8", "bool", "", None, None, None,
    ]  # fmt: skip
    assert functions["nothing"] == ()


def test_a_kernel_computes_what_it_says() -> None:
    kernel = load_cpp(SOURCE)
    x, y = torch.randn(1000), torch.empty(1000)
    kernel.scale(x, y, 1000, 1.5)
    assert torch.equal(y, x * 2 * 1.5)
    longs, ints = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    kernel.kinds(None, longs, ints, None, None, x, 7, 5.9, True)
    assert (longs.item(), ints.item()) == (8, 5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda x, y: (x, y, 5), "scale takes 4 arguments"),
        (lambda x, y: (x.double(), y, 5, 1.0), "argument 1 (x, float*) is a float64 tensor; pass a float32 one"),
        (lambda x, y: (x[::2], y, 5, 1.0), "argument 1 (x, float*) is not contiguous"),
        (lambda x, y: (x, y.to("meta"), 5, 1.0), "argument 2 (y, float*) is on meta"),
        (lambda x, y: (x, y, 5.5, 1.0), "argument 3 (n, long) is 5.5; pass an integer"),
        (lambda x, y: (x, y, 2**64, 1.0), "does not fit in long"),
        (lambda x, y: (x, y, x, 1.0), "argument 3 (n, long) is a tensor"),
        (lambda x, y: (x, y, 5, "fast"), "argument 4 (s, float) is 'fast'"),
        (lambda x, y: (5, y, 5, 1.0), "argument 1 (x, float*) is 5; pass a tensor"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_call(arguments: object, words: str) -> None:
    kernel = load_cpp(SOURCE)
    x, y = torch.randn(10), torch.zeros(10)
    with pytest.raises(SignatureError) as error:
        kernel.scale(*arguments(x, y))  # type: ignore[operator]
    assert words in str(error.value)
    assert not y.any()


def test_compile_errors_carry_the_source_line_and_stay_short() -> None:
    with pytest.raises(CompileError, match=r"line 2: .*undeclared_thing"):
        load_cpp('extern "C" void f(int n) {\n return undeclared_thing;\n}')
    assert len(summarise_errors("\n".join(f"k.cpp:{i}:1: error: {'x' * 500}" for i in range(50)))) <= 600


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("void f(int n) {}", "defines no extern"),
        ('extern "C" void f(std::vector<float> v) {}', "cannot be passed"),
        ('extern "C" void f(float** p) {}', "cannot be passed"),
        ('extern "C" void f(float& p) {}', "cannot be passed"),
    ],
)
def test_a_declaration_that_python_cannot_call_is_named(source: str, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        load_cpp(source)


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no extern"):
        load_cpp(SOURCE).missing  # noqa: B018


def test_the_cache_is_private_and_hit(home: Path) -> None:
    load_cpp(SOURCE)
    files = {path: path.stat().st_mtime_ns for path in (home / "cpp").glob("*.so")}
    load_cpp(SOURCE)
    assert files == {path: path.stat().st_mtime_ns for path in (home / "cpp").glob("*.so")}
    assert (home / "cpp").stat().st_mode & 0o077 == 0
