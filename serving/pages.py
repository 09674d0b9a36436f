"""The web page, and the page that describes the interface. They load nothing from elsewhere."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from serving.settings import ServingSettings

WEB = Path(__file__).with_name("web")
PAGE_POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}
ASSETS = {"page.js": "text/javascript", "page.css": "text/css"}


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined)


@cache
def asset(name: str) -> str:
    """Text of one of ASSETS."""
    return (WEB / name).read_text("utf-8")


def web_page(settings: ServingSettings) -> str:
    """The page to paste an operation, watch the search and copy the kernel."""
    limits = {"max_candidates": settings.max_candidates, "budget_seconds": int(settings.budget_seconds)}
    return _templates().get_template("page.html").render(limits)


def api_page(schema: dict[str, Any]) -> str:
    """The OpenAPI description for people."""
    routes = [
        _route(path, method, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    return _templates().get_template("docs.html").render(info=schema["info"], routes=routes)


def _route(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {})
    needed = set(body.get("required", ()))
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "text": operation.get("description", operation.get("summary", "")),
        "parameters": [{"description": "", **one} for one in operation.get("parameters", [])],
        "fields": [
            {
                "name": name,
                "type": _type(field),
                "optional": name not in needed,
                "default": json.dumps(field["default"]) if field.get("default") is not None else "",
            }
            for name, field in body.get("properties", {}).items()
        ],
    }


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(name for name in map(_type, field["anyOf"]) if name != "null")
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type") or field.get("$ref", "").rpartition("/")[2] or "any")
