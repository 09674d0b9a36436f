import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from archive.types import Record
from judge.types import Status, Verdict
from search.sweep import find_knobs, next_values, set_knobs, sweep, template_of
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks

CODE = """\
TILE = 16
ROWS = 512
SOURCE = r'''
#define BLOCK 64
constexpr int UNROLL = 4;
const int zero = 0;
extern "C" void f(float* y, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) y[i] = BLOCK;
}
'''
class ModelNew: pass
"""


def test_knobs_are_named_numbers_and_clauses_and_nothing_else() -> None:
    knobs = {knob.name: (knob.value, knob.choices) for knob in find_knobs(CODE)}
    assert list(knobs) == ["TILE", "BLOCK", "UNROLL", "schedule"]
    assert knobs["BLOCK"] == ("64", ("64", "16", "32", "128", "256"))
    assert knobs["UNROLL"] == ("4", ("4", "2", "8", "16"))
    assert "" in knobs["schedule"][1]


def test_setting_knobs_changes_their_values_only_and_can_be_read_back() -> None:
    changed = set_knobs(CODE, {"BLOCK": "256", "schedule": " schedule(guided)", "TILE": "8"})
    expected = CODE.replace("BLOCK 64", "BLOCK 256").replace("parallel for", "parallel for schedule(guided)")
    assert changed == expected.replace("TILE = 16", "TILE = 8")
    assert {k.name: k.value for k in find_knobs(changed)}["schedule"] == " schedule(guided)"
    assert template_of(changed) == template_of(CODE) != template_of(CODE.replace("= BLOCK", "= 2 * BLOCK"))


def test_two_knobs_of_one_name_are_told_apart() -> None:
    code = "#define N 8\n#define N 16\n"
    assert [knob.name for knob in find_knobs(code)] == ["N", "N#2"]
    assert set_knobs(code, {"N#2": "32"}) == "#define N 8\n#define N 32\n"


def test_an_unknown_knob_is_an_error() -> None:
    with pytest.raises(KeyError):
        set_knobs(CODE, {"NONE": "1"})


def measured(code: str, speedup: float, make_record: Callable[..., Record]) -> Record:
    return make_record(speedup, code=code, record_id=f"{hash(code) & 0xFFFFFFFF:x}")


def test_nothing_is_tried_twice_and_a_used_up_space_says_so(make_record: Callable[..., Record]) -> None:
    code = "#define BLOCK 64\nclass ModelNew: pass\n"
    base = measured(code, 1.0, make_record)
    records, tried = [base], {code}
    for seed in range(4):
        _, codes = sweep(records, count=1, seed=seed)
        assert len(codes) == 1
        assert codes[0] not in tried
        tried |= set(codes)
        records.append(measured(codes[0], 0.9, make_record))
    assert sweep(records, count=1, seed=9) == (None, [])
    assert {find_knobs(one)[0].value for one in tried} == {"16", "32", "64", "128", "256"}


def test_the_search_finds_the_best_setting_sooner_than_chance(make_record: Callable[..., Record]) -> None:
    """Speed falls with the distance from BLOCK 256, UNROLL 16, TILE 64: one of 5 * 4 * 5 settings (times 5)."""

    def speed(code: str) -> float:
        values = {knob.name: knob.value for knob in find_knobs(code)}
        near = sum(values[name] == best for name, best in {"BLOCK": "256", "UNROLL": "16", "TILE": "64"}.items())
        return 1.0 + near

    found = 0
    for seed in range(5):
        base = measured(CODE, speed(CODE), make_record)
        records = [base]
        for round_number in range(45):
            for values in next_values(base, records, count=1, seed=100 * seed + round_number):
                code = set_knobs(CODE, values)
                records.append(measured(code, speed(code), make_record))
        found += max(record.score for record in records) == 4.0
    # By chance 45 of 500 settings hold one of the five best with probability 38%: 4 or more of 5 would be 7%.
    assert found >= 4


def test_failures_are_told_to_the_study_and_failures_of_the_judge_are_not(make_record: Callable[..., Record]) -> None:
    base = measured("#define BLOCK 64\nclass ModelNew: pass\n", 1.0, make_record)
    failed = [
        make_record(0, value, code=set_knobs(base.code, {"BLOCK": value}), verdict=Verdict(status=status))
        for value, status in (("16", Status.INCORRECT), ("32", Status.JUDGE_ERROR))
    ]
    values = {one["BLOCK"] for seed in range(8) for one in next_values(base, [base, *failed], count=3, seed=seed)}
    assert values == {"32", "128", "256"}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("#pragma omp parallel for", "#pragma omp parallel for schedule(guided)"),
        ("#pragma omp parallel for simd", "#pragma omp parallel for simd schedule(guided)"),
        ("#pragma omp parallel for reduction(+:s)", "#pragma omp parallel for schedule(guided) reduction(+:s)"),
        (
            "#pragma omp parallel for schedule(static, 4) if(n > 9)",
            "#pragma omp parallel for schedule(guided) if(n > 9)",
        ),
        ("#pragma omp parallel for collapse(2) schedule(static)", None),
        ("#pragma omp simd reduction(+:s)", "#pragma omp simd simdlen(8) reduction(+:s)"),
        ("#pragma omp simd aligned(x) simdlen(4)", None),
    ],
)
def test_a_clause_is_put_where_the_compiler_takes_it(line: str, changed: str | None) -> None:
    code = f"{line}\nfor (;;) {{}}\n"
    knobs = find_knobs(code)
    assert len(knobs) == (changed is not None)
    if changed:
        value = " simdlen(8)" if "simdlen" in changed else " schedule(guided)"
        assert set_knobs(code, {knobs[0].name: value}) == f"{changed}\nfor (;;) {{}}\n"


@pytest.mark.slow
def test_every_setting_of_the_suites_kernels_compiles(tmp_path: Path) -> None:
    """One setting a kernel, all knobs at their last choice: g++ says whether the text is still C++."""
    for task in suite_tasks():
        for kernel in expert_kernels(task.name):
            knobs = find_knobs(kernel.code)
            code = set_knobs(kernel.code, {knob.name: knob.choices[-1] for knob in knobs})
            source = re.search(r'r"""(.*?)"""', code, re.DOTALL)
            assert source is not None
            (tmp_path / "k.cpp").write_text(source[1])
            flags = ["-O1", "-std=c++17", "-fopenmp", "-march=native", "-fsyntax-only"]
            done = subprocess.run(["g++", *flags, str(tmp_path / "k.cpp")], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{task.name} {kernel.quality} {knobs}: {done.stderr[:500]}"
