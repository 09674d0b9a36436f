"""Advantages within a group: the completions of one prompt are measured against each other."""

from __future__ import annotations

from typing import Literal

import numpy as np

EPSILON = 1e-6
"""Added to the standard deviation; a group whose deviation is below it has nothing to tell apart."""


def group_advantages(rewards: np.ndarray, kind: Literal["grpo", "dr_grpo", "rloo"]) -> np.ndarray:
    """Advantage of each completion of one group, float64.

    Args:
        rewards: shape [G], G >= 1.
        kind:
            "grpo": ``(r - mean) / (std + eps)``, std over the group with divisor G - 1
            (DeepSeekMath, arXiv 2402.03300, section 4.1.2).
            "dr_grpo": ``r - mean``, without the division that overweights groups of little spread
            (Dr. GRPO, arXiv 2503.20783, section 3.2).
            "rloo": ``r_i - mean of the others`` (REINFORCE leave-one-out, arXiv 2402.14740, section 2.2).

    Returns:
        Shape [G]; zeros for a group of one and for equal rewards: they hold no contrast.
    """
    values = np.asarray(rewards, dtype=np.float64)
    size = values.shape[0]
    if size < 2:
        return np.zeros(size)
    centred = values - values.mean()
    # Equal rewards leave rounding errors of the mean behind; dividing by their spread would make them advantages.
    if np.ptp(values) <= EPSILON:
        return np.zeros(size)
    if kind == "grpo":
        return centred / (values.std(ddof=1) + EPSILON)
    if kind == "dr_grpo":
        return centred
    # r_i - (sum - r_i) / (G - 1) = (r_i - mean) * G / (G - 1)
    return centred * size / (size - 1)
