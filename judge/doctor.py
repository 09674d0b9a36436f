"""What isolation this machine offers."""

from __future__ import annotations

from judge.api import Judge
from judge.jail import LAYERS
from judge.settings import JudgeSettings


def isolation_layers() -> dict[str, str]:
    """Each layer with "active", or why it is not: found by raising them. Raises JudgeError when no jail starts."""
    with Judge(JudgeSettings(exclusive_timing=False)) as judge:
        missing = judge.missing_layers()
    return {layer: missing.get(layer, "active") for layer in LAYERS}
