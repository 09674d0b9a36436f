"""When two candidates are the same code."""

from __future__ import annotations

import ast
import hashlib


def fingerprint(code: str) -> str:
    """16 hex digits that agree for candidates which differ in comments, blank lines, quotes or docstrings only.

    Text that is not Python, or is nested too deeply to be walked, is hashed as it stands.
    """
    try:
        tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
                node.body = node.body[1:]
        text = ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = code
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
