import numpy as np
import pytest

from search.novelty import embed, is_novel, nearest, similarity
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks


def test_equal_code_is_alike_and_unlike_code_is_not() -> None:
    first = "for (long i = 0; i < n; i++) y[i] = x[i] * 2.0f;"
    assert similarity(first, f"{first}  // the same\n") == pytest.approx(1)
    assert abs(similarity(first, "import torch\nclass Model(torch.nn.Module): pass")) < 0.3


def test_embeddings_are_unit_vectors_and_nothing_is_zero() -> None:
    assert np.linalg.norm(embed("a b c")) == pytest.approx(1)
    assert not embed("").any()


def test_hashing_estimates_the_cosine_of_the_exact_counts() -> None:
    """Without collisions the cosine is that of log-damped n-gram counts; 1024 buckets keep it within a few percent."""
    import math
    import re
    from collections import Counter

    def counts(code: str) -> Counter[str]:
        tokens = re.findall(r"\w+|[^\s\w]", code)
        return Counter(" ".join(tokens[i : i + n]) for n in (1, 2, 3) for i in range(len(tokens) - n + 1))

    first, second = "y [ i ] = x [ i ] + b [ j ] ;", "y [ i ] = x [ i ] * b [ i ] ;"
    a, b = counts(first), counts(second)
    weight = {key: 1 + math.log(value) for key, value in a.items()}
    other = {key: 1 + math.log(value) for key, value in b.items()}
    dot = sum(weight[key] * other.get(key, 0) for key in weight)
    exact = dot / math.sqrt(sum(v * v for v in weight.values()) * sum(v * v for v in other.values()))
    assert similarity(first, second) == pytest.approx(exact, abs=0.05)


def test_the_filter_stops_near_copies_and_lets_other_ideas_through() -> None:
    good, plain = (kernel.code for kernel in expert_kernels("softmax")[:2])
    assert not is_novel(good.replace("rows", "lines", 1), [good], 0.98)
    assert is_novel(plain, [good], 0.98)
    assert is_novel(good, [], 0.98)


def test_the_most_similar_task_is_of_the_same_family() -> None:
    tasks = {task.name: task for task in suite_tasks()}
    others = [name for name in tasks if name != "masked_softmax"]
    index, likeness = nearest(tasks["masked_softmax"].source, [tasks[name].source for name in others])
    assert others[index] in ("softmax", "causal_attention", "logsumexp")
    assert 0 < likeness < 1
