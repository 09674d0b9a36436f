"""Writes the configuration's reference into the site: every key with its type, default and the line under it."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
import textwrap
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MARK = "<!-- every key of the configuration -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs calls this for each page."""
    return markdown.replace(MARK, config_reference()) if MARK in markdown else markdown


def config_reference() -> str:
    """A table for each section of the configuration."""
    from cluster.config import Config

    parts = []
    for name, field in Config.model_fields.items():
        parts.append(f"## {name}\n\n{_intro(field.annotation)}{_table(field.annotation, f'{name}.')}")
    return "\n".join(parts)


def _intro(model: Any) -> str:
    text = " ".join((model.__doc__ or "").split())
    return f"{text}\n\n" if text and not text.startswith("!!!") else ""


def _table(model: Any, prefix: str) -> str:
    rows = "".join(_rows(model, prefix))
    return f"| key | type | default | |\n|---|---|---|---|\n{rows}\n"


def _rows(model: Any, prefix: str) -> Any:
    from pydantic import BaseModel

    said = field_docs(model)
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _rows(kind, f"{prefix}{name}.")
            continue
        default = field.get_default(call_default_factory=True)
        shown = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
        cells = (f"`{prefix}{name}`", f"`{shown}`", f"`{default!r}`", said.get(name, ""))
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def field_docs(model: Any) -> dict[str, str]:
    """The string under each field of a model, which Python itself forgets."""
    found = {}
    for owner in reversed(model.__mro__):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body  # type: ignore[attr-defined]
        except (OSError, TypeError, SyntaxError, AttributeError):
            continue
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found
