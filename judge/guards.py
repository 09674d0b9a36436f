"""Guard bands: in verified calls, tensors that foreign code makes for its results lie between bytes of a known pattern.

A kernel that writes past an end damages the pattern, which is looked at after the call. Uninitialised tensors are
filled with NaN (or ones in every bit), so that what was never written cannot be right by luck. This runs in the
candidate's own process and tells honest code of its mistakes; nothing that the judge must rely on rests on it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

BAND_BYTES = 512
"""On either side; a multiple of every alignment that kernels ask for."""
_PATTERN = 0xA5
_UNWRITTEN = 0xFF
"""In every byte: NaN for floating types, -1 for signed integers."""
_MOST_GUARDED = 64
_UNINITIALISED = {torch.empty, torch.empty_like, torch.Tensor.new_empty}
_FACTORIES = _UNINITIALISED | {
    torch.zeros,
    torch.zeros_like,
    torch.ones,
    torch.full,
    torch.full_like,
    torch.Tensor.new_zeros,
    torch.Tensor.new_full,
    torch.Tensor.clone,
}


class Guards(TorchFunctionMode):
    """Within it torch's factories return tensors between guard bands."""

    def __init__(self) -> None:
        super().__init__()
        self._guarded: list[tuple[torch.Tensor, int, tuple[int, ...]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _FACTORIES and "out" not in (kwargs or {}) and len(self._guarded) < _MOST_GUARDED:
            with torch._C.DisableTorchFunction():
                return self._guard(made, poison=func in _UNINITIALISED)
        return made

    def _guard(self, made: Any, *, poison: bool) -> Any:
        plain = (
            type(made) is torch.Tensor
            and made.layout is torch.strided
            and made.is_contiguous()
            and not made.requires_grad
            and made.numel() > 0
            and made.device.type in ("cpu", "cuda")
            and not (made.device.type == "cpu" and made.is_pinned())
        )
        if not plain:
            return made
        size = made.numel() * made.element_size()
        whole = torch.empty(2 * BAND_BYTES + size, dtype=torch.uint8, device=made.device).fill_(_PATTERN)
        body = whole[BAND_BYTES : BAND_BYTES + size]
        inner = body.view(made.dtype).view(made.shape)
        if not poison:
            inner.copy_(made)
        else:
            body.fill_(1 if made.dtype is torch.bool else _UNWRITTEN)
        self._guarded.append((whole, size, tuple(made.shape)))
        return inner

    def damage(self) -> str:
        """What was written outside of a tensor since the last call of this method; empty when nothing was."""
        found = ""
        for whole, size, shape in self._guarded:
            bands = {"before the beginning": whole[:BAND_BYTES], "past the end": whole[BAND_BYTES + size :]}
            for where, band in bands.items():
                if not found and bool((band != _PATTERN).any()):
                    found = f"it writes {where} of a tensor of shape {list(shape)}"
        self._guarded.clear()
        return found
