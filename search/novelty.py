"""How alike two pieces of code are: hashed n-grams of their tokens, compared by cosine.

For the novelty filter (a candidate that is nearly a copy is not worth a judge) and for finding similar tasks.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Sequence

import numpy as np

DIMENSIONS = 1024
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+\.?\d*(?:e[+-]?\d+)?f?|[^\s\w]")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(?m:^\s*# [^\n]*)", re.DOTALL)


@functools.lru_cache(maxsize=16384)
def embed(code: str) -> np.ndarray:
    """A unit vector, float32 [DIMENSIONS]: signed hashes of token 1- to 3-grams, damped by a logarithm.

    Zero for code without tokens. Feature hashing with signs: Weinberger et al., arXiv 0902.2206.
    """
    tokens = _TOKEN.findall(_COMMENT.sub(" ", code))
    counts: dict[str, int] = {}
    for size in (1, 2, 3):
        for start in range(len(tokens) - size + 1):
            gram = " ".join(tokens[start : start + size])
            counts[gram] = counts.get(gram, 0) + 1
    vector: np.ndarray = np.zeros(DIMENSIONS, dtype=np.float32)
    for gram, count in counts.items():
        digest = zlib.crc32(gram.encode(errors="replace"))
        vector[digest % DIMENSIONS] += (1.0 if digest >> 31 else -1.0) * (1.0 + np.log(count))
    norm = float(np.linalg.norm(vector))
    if norm:
        vector /= norm
    vector.flags.writeable = False  # shared by all callers
    return vector


def similarity(first: str, second: str) -> float:
    """Cosine of the two embeddings: 1 for equal code, about 0 for code that shares nothing."""
    return float(embed(first) @ embed(second))


def nearest(code: str, others: Sequence[str]) -> tuple[int, float]:
    """(index, similarity) of the most similar one; (-1, 0.0) when there is none."""
    if not others:
        return -1, 0.0
    likeness = np.stack([embed(other) for other in others]) @ embed(code)
    index = int(likeness.argmax())
    return index, float(likeness[index])


def is_novel(code: str, known: Sequence[str], threshold: float) -> bool:
    """Whether no known code is more similar than `threshold` (1 admits all but equal token counts)."""
    return nearest(code, known)[1] <= threshold
