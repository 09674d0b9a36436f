"""Where kernels stand on a task's similarity map: the two directions in which their vectors differ most."""

from __future__ import annotations

import numpy as np

_MOST = 1500
"""Rows that the directions are computed from; all rows are then placed by them."""


def project(vectors: np.ndarray) -> list[list[float]]:
    """(n, d) vectors -> n points [x, y] in [-1, 1], by principal components; near points are similar code.

    The sign of each direction is fixed, so that the same kernels give the same map.
    """
    if len(vectors) < 3:
        return [[0.0, 0.0]] * len(vectors)
    sample = vectors[:: -(-len(vectors) // _MOST)]
    center = sample.mean(axis=0)
    # The eigenvectors of the small Gram matrix give the directions without an SVD of the large one.
    differences = sample - center
    _, basis = np.linalg.eigh(differences @ differences.T)
    directions = differences.T @ basis[:, ::-1][:, :2]
    lengths = np.linalg.norm(directions, axis=0)
    directions = np.where(lengths > 1e-6, directions / np.maximum(lengths, 1e-6), 0.0)
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), [0, 1]])
    points = (vectors - center) @ (directions * np.where(signs == 0, 1.0, signs))
    scale = np.abs(points).max(axis=0)
    points = np.where(scale > 1e-6, points / np.maximum(scale, 1e-6), 0.0)
    return [[round(float(x), 3), round(float(y), 3)] for x, y in points]
