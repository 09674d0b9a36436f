"""LoRA adapters as files in PEFT's form: ``adapter_model.safetensors`` and ``adapter_config.json``.

A policy of warpsmith is a base model and an adapter. ``publish`` writes one beside the merged weights (vLLM loads
those), ``prepare_model`` takes an adapter's folder wherever a model is asked for, and the learner goes on training it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learner.errors import LearnerError

if TYPE_CHECKING:
    import torch

    from learner.settings import LoraSettings

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
FOLDER = "adapter"
"""Where a model's folder keeps the adapter that is merged into its weights."""
_PREFIX = "base_model.model."


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The low-rank parts of the layers they are for: a layer's weight is W + (alpha / rank) B A (arXiv:2106.09685)."""

    base: str
    """The model that it belongs to, as ``prepare_model`` takes it."""
    rank: int
    alpha: float
    targets: tuple[str, ...]
    """Last parts of the layers' names, such as "q_proj"."""
    parts: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    """Layer's name: A of shape (rank, inputs), B of shape (outputs, rank)."""

    def fits(self, lora: LoraSettings) -> bool:
        """Whether a learner with these settings can go on training it."""
        return (self.rank, self.alpha, sorted(self.targets)) == (lora.rank, lora.alpha, sorted(lora.targets))


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds an adapter."""
    return (folder / CONFIG).is_file()


def save_adapter(adapter: Adapter, folder: Path) -> None:
    """Write the adapter in bfloat16 into the folder, which is made. Raises OSError, SafetensorError."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, (a, b) in adapter.parts.items():
        tensors[f"{_PREFIX}{name}.lora_A.weight"] = a.to("cpu", torch.bfloat16).contiguous()
        tensors[f"{_PREFIX}{name}.lora_B.weight"] = b.to("cpu", torch.bfloat16).contiguous()
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(adapter.targets),
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def read_adapter(folder: Path) -> Adapter:
    """The adapter of a folder. Raises LearnerError when a file is missing or says what warpsmith cannot use."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = json.loads((folder / CONFIG).read_text())
        tensors = load_file(folder / WEIGHTS)
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        base, targets = str(config["base_model_name_or_path"]), config["target_modules"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise LearnerError(
            f"adapter {folder} cannot be read ({error!r}): give PEFT's two files, {CONFIG} and {WEIGHTS}"
        ) from error
    unlike: dict[str, Any] = {"peft_type": "LORA", "bias": "none", "use_dora": False, "use_rslora": False}
    for key, value in unlike.items():
        if config.get(key, value) != value:
            raise LearnerError(
                f"adapter {folder} has {key} = {config[key]!r}: only plain LoRA ({value!r}) is supported"
            )
    if not isinstance(targets, list):
        raise LearnerError(f"adapter {folder} has target_modules = {targets!r}: give the layers' names as a list")
    parts = {}
    for name in tensors:
        layer = name.removeprefix(_PREFIX).removesuffix(".lora_A.weight")
        if name == f"{_PREFIX}{layer}.lora_A.weight":
            other = f"{_PREFIX}{layer}.lora_B.weight"
            if other not in tensors:
                raise LearnerError(f"adapter {folder} has {name} without {other}: save it again")
            parts[layer] = (tensors[name], tensors[other])
    if not parts or 2 * len(parts) != len(tensors):
        raise LearnerError(f"adapter {folder} has tensors that are no lora_A or lora_B: save it with PEFT")
    return Adapter(base=base, rank=rank, alpha=alpha, targets=tuple(targets), parts=parts)


def merge(adapter: Adapter, base: Path, folder: Path) -> None:
    """Write the base model with the adapter added into ``folder``, and the adapter beside it.

    The sum is made in float32 and rounded once to bfloat16, as the learner publishes it. Raises LearnerError when the
    adapter is for another model.
    """
    import torch
    from safetensors.torch import load_file, save_file

    from learner.pretrained import copy_side_files, write_untied_config

    tensors = {name: tensor for file in sorted(base.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    merged = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    for layer, (a, b) in adapter.parts.items():
        weight = tensors.get(f"{layer}.weight")
        if weight is None or weight.shape != (b.shape[0], a.shape[1]):
            found = "is not there" if weight is None else f"has shape {tuple(weight.shape)}"
            raise LearnerError(
                f"the adapter does not fit model {adapter.base}: {layer} {found}; give its own base model"
            )
        delta = (b.float() @ a.float()) * (adapter.alpha / adapter.rank)
        merged[f"{layer}.weight"] = (weight.float() + delta).to(torch.bfloat16).contiguous()
    copy_side_files(base, folder)
    write_untied_config(base, folder, dtype="bfloat16")
    save_file(merged, folder / "model.safetensors", metadata={"format": "pt"})
    save_adapter(adapter, folder / FOLDER)
