"""The policies that warpsmith brings: a folder each, with a LoRA adapter and its model card."""

from __future__ import annotations

from pathlib import Path


def bundled_policies() -> dict[str, Path]:
    """Name and folder of each."""
    return {file.parent.name: file.parent for file in sorted(Path(__file__).parent.glob("*/adapter_config.json"))}
