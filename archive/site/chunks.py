"""Data files of the site: scripts that hand over JSON, since a page opened from disk may not fetch anything else.

A chunk is one call, ``W("name", {...})``. Its JSON holds no ``<``, ``>``, ``&`` or line separator as such, so that
nothing in it can end a script or begin a tag, whatever the code in it says.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029", "\x7f": "\\u007f"}
)


def script_json(value: Any) -> str:
    """JSON that is safe inside a script, also where a page includes it. NaN and infinities become null."""
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half a surrogate pair cannot be written as UTF-8.
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()


def write_chunk(folder: Path, name: str, value: Any) -> int:
    """Write ``data/NAME.js``; returns its size in bytes."""
    data = f"W({script_json(name)},{script_json(value)});\n".encode()
    (folder / f"{name}.js").write_bytes(data)
    return len(data)


def fnv1a(text: str) -> int:
    """32-bit FNV-1a of the text's UTF-8 bytes: the page's script computes the same to find a chunk."""
    value = 0x811C9DC5
    for byte in text.encode("utf-8", "replace"):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
