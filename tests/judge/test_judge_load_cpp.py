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
    assert [p.declared for p in functions["scale"]] == ["const float*", "float*", "long", "float"]
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
        (lambda x, y: (x.double(), y, 5, 1.0), "argument 1 (x, const float*) is a float64 tensor; pass x.float()"),
        (lambda x, y: (x[::2], y, 5, 1.0), "argument 1 (x, const float*) is not contiguous; pass x.contiguous()"),
        (lambda x, y: (x, y.to("meta"), 5, 1.0), "argument 2 (y, float*) is on meta; pass a CPU tensor"),
        (lambda x, y: (x, y, 5.5, 1.0), "argument 3 (n, long) is 5.5; pass an integer"),
        (lambda x, y: (x, y, 2**64, 1.0), "does not fit in long"),
        (lambda x, y: (x, y, x, 1.0), "argument 3 (n, long) is a tensor"),
        (lambda x, y: (x, y.double(), 5, 1.0), "argument 2 (y, float*) is a float64 tensor; pass a float32 one"),
        (lambda x, y: (x, y[::2], 5, 1.0), "argument 2 (y, float*) is not contiguous; pass a contiguous tensor"),
        (lambda x, y: (x.numpy(), y, 5, 1.0), "argument 1 (x, const float*) is a ndarray; pass a tensor"),
        (lambda x, y: (x, y, 5, "1.5"), "argument 4 (s, float) is '1.5'; pass a number"),
        (lambda x, y: (x, y, 5, x), "argument 4 (s, float) is a tensor; pass a number"),
        (lambda x, y: (x, y, 5, None), "argument 4 (s, float) is a NoneType; pass a number"),
        (lambda x, y: (5, y, 5, 1.0), "argument 1 (x, const float*) is 5; pass a tensor"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_call(arguments: object, words: str) -> None:
    kernel = load_cpp(SOURCE)
    x, y = torch.randn(10), torch.zeros(10)
    with pytest.raises(SignatureError) as error:
        kernel.scale(*arguments(x, y))  # type: ignore[operator]
    assert words in str(error.value)
    assert not y.any()


def test_an_argument_that_was_right_once_is_checked_again() -> None:
    """The quick way past the checks compares with the last argument that passed them."""
    kernel = load_cpp(SOURCE)
    x, y = torch.randn(10), torch.zeros(10)
    kernel.scale(x, y, 10, 1.0)
    for wrong in (x.double(), x[::2], x.to("meta")):
        with pytest.raises(SignatureError):
            kernel.scale(wrong, y, 5, 1.0)
    kernel.scale(x, y, 10, 2)
    assert torch.equal(y, x * 4)


VARIED = {
    "noexcept": 'extern "C" void f(float* y) noexcept { y[0] = 1; }',
    "prototype": 'extern "C" void f(float* y);\nvoid f(float* y) { y[0] = 1; }',
    "attribute": 'extern "C" __attribute__((visibility("default"))) void f([[maybe_unused]] float* y) { y[0] = 1; }',
    "macro": '#define EXPORT extern "C"\nEXPORT void f(float* y) { y[0] = 1; }',
    "guarded": '#ifdef __cplusplus\nextern "C" {\n#endif\nvoid f(float* y) { y[0] = 1; }\n#ifdef __cplusplus\n}\n'
    "#endif",
    "continued": '#define P const float* \\\n  __restrict\nextern "C" void f(float* y) { y[0] = 1; }',
    "alias": 'using real = float;\ntypedef long int index;\nextern "C" void f(real* y) { index i = 0; y[i] = 1; }',
    "string": 'static const char* s = "// {"; extern "C" void f(float* y) { y[0] = 1; }',
    "raw_string": 'static const char* s = R"x(" // extern "C" {)x"; extern "C" void f(float* y) { y[0] = 1; }',
    "brace_in_string": 'extern "C" { static const char* s = "}"; void f(float* y) { y[0] = *s == \'}\'; } }',
    "quoted": 'const char* s = "extern \\"C\\" void g(int** a) {}"; extern "C" void f(float* y) { y[0] = 1; }',
    "static_helper": 'struct V { float x; };\nextern "C" {\nstatic float g(V v) { return v.x; }\n'
    "inline float h(float x) { return x; }\nvoid f(float* y) { y[0] = h(g(V{1})); }\n}",
    "trailing_return": 'extern "C" auto f(float* y) -> void { y[0] = 1; }',
    "returns_a_number": 'extern "C" int f(float y[]) { y[0] = 1; return 7; }',
    "broken_lines": 'extern "C"\nvoid\nf(\n  float * __restrict__ y // out\n)\n{ y[0] = 1; }',
    "own_namespace": 'namespace mine { extern "C" void f(float* y) { y[0] = 1; } }',
    "separators": "static const int big = 1'000'000;\nextern \"C\" void f(float* y) { y[0] = big > 2'000; }",
}


@pytest.mark.parametrize("source", VARIED.values(), ids=VARIED.keys())
def test_functions_are_found_however_they_are_written(source: str) -> None:
    y = torch.zeros(1)
    load_cpp(source).f(y)
    assert y.item() == 1
    assert set(parse_functions(source)) == {"f"}


INTEGERS = {
    "int8_t": (-(2**7), 2**7 - 1), "unsigned char": (0, 2**8 - 1), "short": (-(2**15), 2**15 - 1),
    "unsigned short int": (0, 2**16 - 1), "int": (-(2**31), 2**31 - 1), "unsigned": (0, 2**32 - 1),
    "long int": (-(2**63), 2**63 - 1), "long long int": (-(2**63), 2**63 - 1), "long unsigned int": (0, 2**64 - 1),
    "std::size_t": (0, 2**64 - 1), "int64_t": (-(2**63), 2**63 - 1), "uint32_t": (0, 2**32 - 1), "bool": (0, 1),
}  # fmt: skip
"""C++17 on a machine where a long has 64 bits."""


def test_integers_of_every_width_arrive_whole_and_no_other_passes() -> None:
    names = [f"f{i}" for i in range(len(INTEGERS))]
    kernel = load_cpp(
        "#include <cstdint>\n#include <cstddef>\n"
        + "".join(
            f'extern "C" void {name}(int64_t* y, {kind}) {{}}\n'  # unnamed: the last word belongs to the type
            f'extern "C" void {name}v(int64_t* y, {kind} n = 1) {{ y[0] = (int64_t)n; }}\n'
            for name, kind in zip(names, INTEGERS, strict=True)
        )
    )
    y = torch.zeros(1, dtype=torch.int64)
    for name, (least, most) in zip(names, INTEGERS.values(), strict=True):
        for value in (least, most, 1):
            getattr(kernel, name)(y, value)
            getattr(kernel, f"{name}v")(y, value)
            assert y.item() % 2**64 == value % 2**64, (name, value)
        for value in (least - 1, most + 1, 1.0):
            with pytest.raises(SignatureError):
                getattr(kernel, f"{name}v")(y, value)


@pytest.mark.parametrize(
    ("pointer", "dtype"),
    [
        ("uint16_t*", torch.uint16), ("const unsigned long*", torch.uint64), ("long long*", torch.int64),
        ("signed char*", torch.int8), ("_Float16*", torch.float16), ("const __bf16*", torch.bfloat16),
    ],
)  # fmt: skip
def test_pointers_take_tensors_of_their_layout_only(pointer: str, dtype: torch.dtype) -> None:
    (parameter,) = parse_functions(f'extern "C" void f({pointer} x) {{}}')["f"]
    assert str(dtype) == f"torch.{parameter.pointee}"
    if "bf16" in pointer:
        return  # g++ has that type since its version 13
    kernel = load_cpp(f'#include <cstdint>\nextern "C" void f({pointer} x) {{}}')
    kernel.f(torch.zeros(3, dtype=dtype))
    with pytest.raises(SignatureError):
        kernel.f(torch.zeros(3))


def test_errors_in_headers_are_given_the_line_of_the_source_that_led_there() -> None:
    source = "#include <vector>\n#include <algorithm>\nstruct S {};\n" + (
        'extern "C" void f(float* y) {\n  std::vector<S> v(3);\n  std::sort(v.begin(), v.end());\n}\n'
    )
    with pytest.raises(CompileError) as error:
        load_cpp(source)
    assert "line 6: no match for 'operator<'" in str(error.value).replace("‘", "'").replace("’", "'")


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpp").mkdir()
    (tmp_path / "cpp").chmod(0o777)
    monkeypatch.setenv("WARPSMITH_HOME", str(tmp_path))
    with pytest.raises(CompileError, match="chmod 700"):
        load_cpp(SOURCE)


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="no no-such-compiler on PATH"):
        load_cpp(SOURCE)


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
