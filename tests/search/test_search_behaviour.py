from collections.abc import Callable

from archive.types import Record
from search.behaviour import LEVELS, Cell, cell_of, coverage, elites

PLAIN = "void f(float* y, long n) { for (long i = 0; i < n; i++) y[i] = 1; }"
THREADS = "#pragma omp parallel for schedule(static)\n" + PLAIN
VECTOR = "#pragma omp simd\n" + PLAIN.replace("float* y", "float* __restrict__ y")


def test_levels_count_means_that_are_in_the_code() -> None:
    assert cell_of(PLAIN) == Cell(0, 0, 0)
    assert cell_of(THREADS) == Cell(0, 0, 2)
    assert cell_of(VECTOR) == Cell(1, 1, 0)


def test_what_comments_claim_counts_for_nothing() -> None:
    claims = "// __restrict__ #pragma omp parallel for simd\n/* __shared__ float tile[64]; _mm256_load_ps */\n"
    assert cell_of(claims + PLAIN) == Cell(0, 0, 0)
    assert cell_of(f"# uses blockIdx and atomicAdd\nSOURCE = r'''{PLAIN}'''") == Cell(0, 0, 0)


def test_no_level_exceeds_the_grid() -> None:
    everything = (
        "#pragma omp parallel for schedule(static) reduction(+:s)\n#pragma omp task\nblockDim __shfl\n"
        "#pragma omp simd\n_mm256_fmadd_ps fmaf( #pragma GCC unroll 4\n__restrict__ tile[ __shared__ float4 TILE = 3;"
    )
    assert cell_of(everything) == Cell(LEVELS - 1, LEVELS - 1, LEVELS - 1)


def test_a_cell_keeps_its_fastest_correct_kernel(make_record: Callable[..., Record]) -> None:
    records = [
        make_record(1.0, "a", code=PLAIN),
        make_record(2.0, "b", code=PLAIN + " "),
        make_record(1.5, "c", code=THREADS),
        make_record(0.0, "wrong", code=VECTOR),
    ]
    best = elites(records)
    assert {cell: record.record_id for cell, record in best.items()} == {Cell(0, 0, 0): "b", Cell(0, 0, 2): "c"}
    assert coverage(records) == 2 / 64
