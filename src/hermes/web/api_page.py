"""The page `/docs`: an OpenAPI description as HTML for people. One file, without scripts and without anything from another server."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any

STYLE = (resources.files(__package__) / "page" / "docs.css").read_text(encoding="utf-8")
PAGE_POLICY = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
METHODS = ("get", "post", "put", "patch", "delete")
MAX_DEPTH = 4
"""How deep a body's fields are shown; a type that contains itself ends there too."""

Part = Mapping[str, Any]
"""A part of the description, as OpenAPI names its fields."""


def write_api_page(api: Part) -> str:
    """Return the page of an OpenAPI description."""
    groups: dict[str, list[str]] = {}
    links: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method in METHODS:
            if operation := methods.get(method):
                tag = (operation.get("tags") or ["other"])[0]
                anchor = re.sub(r"[^a-z0-9]+", "-", f"{method}{path}".lower()).strip("-")
                groups.setdefault(tag, []).append("".join(operation_lines(api, method, path, operation, anchor)))
                links.setdefault(tag, []).append(f'<li><a href="#{anchor}"><b>{method.upper()}</b> {escape(path)}</a></li>')
    info = api["info"]
    contents = "".join(f"<h2>{escape(tag)}</h2><ul>{''.join(lines)}</ul>" for tag, lines in links.items())
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in groups.items())
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}: the API</title><style>{STYLE}</style></head><body>"
        f'<nav aria-label="Routes">{contents}</nav><main><h1>{title}</h1>{prose(info.get("description", ""))}'
        f'<p>For programs: <a href="/openapi.json">openapi.json</a></p>{sections}</main></body></html>'
    )


def operation_lines(api: Part, method: str, path: str, operation: Part, anchor: str) -> Iterator[str]:
    """Yield one route: what it is for, its parameters, its body, and its answers."""
    yield f'<article id="{anchor}"><h3><b class="{method}">{method.upper()}</b> <code>{escape(path)}</code></h3>'
    yield f"<p><strong>{escape(operation.get('summary', ''))}</strong></p>{prose(operation.get('description', ''))}"
    if parameters := operation.get("parameters"):
        yield "<h4>Parameters</h4><table><tr><th>name</th><th>in</th><th>type</th><th>meaning</th></tr>"
        for each in parameters:
            name, kind = mark_required(each["name"], is_required=each.get("required", False)), type_name(api, each.get("schema", {}))
            yield f"<tr><td>{name}</td><td>{escape(each['in'])}</td><td>{kind}</td><td>{prose(each.get('description', ''))}</td></tr>"
        yield "</table>"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<h4>Body <small>{escape(media)}</small></h4>{field_table(api, content.get('schema', {}))}"
    yield "<h4>Answers</h4><dl>"
    for status, answer in operation.get("responses", {}).items():
        yield f"<dt>{escape(status)}</dt><dd>{prose(answer.get('description', ''))}"
        for content in answer.get("content", {}).values():
            yield field_table(api, content.get("schema", {}))
        yield "</dd>"
    yield "</dl></article>"


def field_table(api: Part, schema: Part, depth: int = 0) -> str:
    """The fields of an object as a table, those of inner objects in tables of their own; another type by its name."""
    inner = object_in(api, schema)
    properties = inner.get("properties", {})
    if not properties or depth >= MAX_DEPTH:
        return "" if depth else f"<p>{type_name(api, schema)}</p>" if schema else ""
    rows = []
    for name, found in properties.items():
        shown = mark_required(name, is_required=name in inner.get("required", ()))
        meaning = prose(found.get("description", "")) + field_table(api, found, depth + 1)
        rows.append(f"<tr><td>{shown}</td><td>{type_name(api, found)}</td><td>{meaning}</td></tr>")
    return f"<table><tr><th>field</th><th>type</th><th>meaning</th></tr>{''.join(rows)}</table>"


def object_in(api: Part, schema: Part) -> Part:
    """The object that a schema is about: itself, the one it refers to, or the one in its list or choice."""
    schema = resolve(api, schema)
    if "properties" in schema:
        return schema
    if "items" in schema:
        return object_in(api, schema["items"])
    choices = [resolve(api, each) for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ()))]
    return next((each for each in choices if "properties" in each), {})


def type_name(api: Part, schema: Part) -> str:
    """A short name of a type: `text`, `list of object`, `integer or null`."""
    schema = resolve(api, schema)
    if choices := (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        return " or ".join(dict.fromkeys(type_name(api, each) for each in choices))
    if values := schema.get("enum"):
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {type_name(api, schema.get('items', {}))}"
    default = f" = <code>{escape(json.dumps(schema['default'], ensure_ascii=False))}</code>" if schema.get("default") else ""
    return escape(str(schema.get("format") or ("text" if kind == "string" else kind))) + default


def resolve(api: Part, schema: Part) -> Part:
    """Follow a reference such as `#/components/schemas/Message`."""
    if "$ref" not in schema:
        return schema
    found: Any = api
    for step in schema["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return resolve(api, found)


def mark_required(name: str, *, is_required: bool) -> str:
    return f"<code>{escape(name)}</code>" + (' <em title="required">needed</em>' if is_required else "")


def prose(text: str) -> str:
    """A text with its paragraphs, and its `code`."""
    paragraphs = (re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(part)) for part in re.split(r"\n\s*\n", text.strip()) if part.strip())
    return "".join(f"<p>{part}</p>" for part in paragraphs)
