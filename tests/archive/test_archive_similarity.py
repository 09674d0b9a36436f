from collections.abc import Callable

import numpy as np
import pytest

from archive import similarity
from archive.similarity import DIMENSIONS, index_of, novelty, tokens_of, vector_of
from archive.store import Archive
from archive.types import Record
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks

Make = Callable[..., Record]


def _kernels() -> dict[tuple[str, str], str]:
    return {
        (task.name, kernel.quality): kernel.code
        for task in suite_tasks()
        for kernel in expert_kernels(task.name)
        if kernel.backend == "cpp"
    }


def test_tokens_leave_out_comments_and_layout() -> None:
    assert tokens_of("x  =  a+b  # sum\n") == ["x", "=", "a", "+", "b"]
    c = "#pragma omp simd\ny[i] += 2.0f; // far\n/* a\nb */ f<<<1, 2>>>(x)"
    expected = "# pragma omp simd y [ i ] += 2.0f ; f <<< 1 , 2 >>> ( x )"
    assert tokens_of(c) == expected.split()


def test_a_vector_has_length_one_and_ignores_comments() -> None:
    code = "for (long i = 0; i < n; ++i) y[i] = x[i];"
    assert np.linalg.norm(vector_of(code)) == pytest.approx(1.0, abs=1e-6)
    assert np.array_equal(vector_of(code), vector_of(code.replace(" ", "  ") + " // the same"))
    assert not vector_of("").any()
    assert vector_of("\ud800 x").shape == (DIMENSIONS,)


def test_similarity_is_near_the_cosine_of_the_unhashed_counts() -> None:
    codes = list(_kernels().values())[:6]

    def grams(code: str) -> dict[tuple[str, ...], float]:
        tokens, counts = tokens_of(code), {}
        for length in (1, 2, 3):
            for at in range(len(tokens) - length + 1):
                gram = tuple(tokens[at : at + length])
                counts[gram] = counts.get(gram, 0) + 1
        return {gram: float(np.log1p(count)) for gram, count in counts.items()}

    for a in codes:
        for b in codes:
            ga, gb = grams(a), grams(b)
            dot = sum(weight * gb.get(gram, 0.0) for gram, weight in ga.items())
            cosine = dot / np.sqrt(sum(w * w for w in ga.values()) * sum(w * w for w in gb.values()))
            assert float(vector_of(a) @ vector_of(b)) == pytest.approx(cosine, abs=4 / np.sqrt(DIMENSIONS))


def test_a_kernel_with_new_names_is_nearest_to_where_it_came_from(archive: Archive, make_record: Make) -> None:
    kernels = _kernels()
    for (name, quality), code in kernels.items():
        archive.add(make_record(1.0, code=code, record_id=f"{name}-{quality}"))
    index = index_of(archive)
    hits = 0
    for (name, quality), code in kernels.items():
        renamed = code.replace("rows", "n_rows").replace("cols", "width").replace("out", "result")
        hits += index.nearest(renamed, 1)[0].record_id == f"{name}-{quality}"
    assert hits >= 0.9 * len(kernels)


def test_vectors_are_computed_once(archive: Archive, make_record: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.add_many([make_record(1.0, code=f"int f{i % 3}();") for i in range(9)] + [make_record(1.0, code="")])
    first = index_of(archive)
    assert len(first.record_ids) == 9
    monkeypatch.setattr(similarity, "vector_of", lambda code: pytest.fail("computed again"))
    again = index_of(archive)
    assert np.array_equal(first.vectors, again.vectors)


def test_an_empty_archive_has_an_empty_index(archive: Archive) -> None:
    assert index_of(archive).nearest("x", 3) == []


def test_novelty_is_what_no_other_kernel_has() -> None:
    assert novelty("int f();", []) == 1.0
    assert novelty("int f();", ["int f();", "float g(double);"]) == pytest.approx(0.0, abs=1e-6)
    assert 0.2 < novelty("int f(long x);", ["double g(char* y, short z);"]) <= 1.0
