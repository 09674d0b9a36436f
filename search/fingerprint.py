"""When two candidates are the same code."""

from __future__ import annotations

import ast
import hashlib


def fingerprint(code: str) -> str:
    """16 hex digits that agree for candidates which differ in comments, blank lines, quotes or docstrings only.

    Text that is not Python is hashed as it stands.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(code.encode(errors="replace")).hexdigest()[:16]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]
