"""Writes OpenAPI's description as the page `/docs`.

FastAPI's own page loads scripts from another host: a server without internet would show
nothing, and a user's browser would call a third party. This page has no scripts.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined

from selectrie.server.wire import branches

HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
"""Headers of the page, by which a browser loads nothing else for it."""

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ title }} {{ version }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin: 2rem 0 0; font-size: 1.1rem; }
p { margin: 0.25rem 0; }
td { padding: 0 1.5rem 0 0; vertical-align: top; }
</style>
<h1>{{ title }} {{ version }}</h1>
<p><a href="openapi.json">openapi.json</a> describes the same for programs.</p>
{% for one in endpoints %}
<h2><code>{{ one.method }} {{ one.path }}</code></h2>
<p>{{ one.description }}</p>
{% if one.fields %}
<table>
{% for field in one.fields %}
<tr><td><code>{{ field.name }}</code></td><td>{{ field.type }}</td><td>{{ field.note }}</td></tr>
{% endfor %}
</table>
{% endif %}
{% endfor %}
</html>
"""


def api_page(schema: Mapping[str, Any]) -> str:
    """Return the page for OpenAPI's description of an application."""
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(_PAGE)
    info, schemas = schema["info"], schema.get("components", {}).get("schemas", {})
    endpoints = list(_endpoints(schema["paths"], schemas))
    return template.render(title=info["title"], version=info["version"], endpoints=endpoints)


def _endpoints(paths: Mapping[str, Mapping[str, Any]], schemas: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in paths.items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            forms = [] if body is None else list(branches(body, schemas))
            fields = ChainMap(*(form["properties"] for form in forms))
            yield {
                "method": method.upper(),
                "path": path,
                "description": one.get("description", ""),
                "fields": [
                    _field(name, value, schemas, is_required=any(name in form.get("required", ()) for form in forms))
                    for name, value in fields.items()
                ],
            }


def _field(name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any], *, is_required: bool) -> dict[str, str]:
    members = list(branches(schema, schemas))
    values = " or ".join(repr(value) for one in members for value in one.get("enum", ()))
    notes = ["required" if is_required else "", values, schema.get("description", "")]
    kinds = " or ".join(dict.fromkeys(_type_of(one, schemas) for one in members))
    return {"name": name, "type": kinds or "null", "note": "; ".join(filter(None, notes))}


def _type_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return what a value may be, as JSON calls it: `string`, `array of integer`."""
    name = str(schema.get("type", "any"))
    if "items" not in schema:
        return name
    return " or ".join(
        dict.fromkeys(f"{name} of {_type_of(one, schemas)}" for one in branches(schema["items"], schemas))
    )
