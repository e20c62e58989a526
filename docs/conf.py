"""Settings of the documentation as a site, which `make docs` builds."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import selectrie  # noqa: E402 - the package of this checkout

project = "selectrie"
version = release = selectrie.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.coverage"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "src/selectrie/**/README.md",
    "src/selectrie/assets/*.md",
    "tools/embedded_model/README.md",
    "tests/server/CONFORMANCE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
exclude_patterns = [".*", "build", "dist", "benchmarks", "grammars", "docs/_*"]
templates_path = ["_templates"]

myst_heading_anchors = 4  # as GitHub makes them

html_theme = "furo"
html_title = "selectrie"
html_copy_source = False
html_show_copyright = html_show_sphinx = False
html_additional_pages = {"index": "forward.html"}  # the folder opens with `docs/index.html`

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
napoleon_use_rtype = False

PUBLIC = (
    "selectrie.testing",
    "selectrie.results",
    "selectrie.evaluation",
    "selectrie.server",
    "selectrie",
    "selectrie.errors",
)
"""Modules that promise names; a name that two promise is shown as of the later one."""

AWAITABLE = [name for name in dir(selectrie.Engine) if hasattr(selectrie.Engine, f"a{name}")]
coverage_ignore_pyobjects = [
    rf"\.a({'|'.join(AWAITABLE)})$",  # described once, on the page about asyncio
    r"^selectrie\.testing\.(FakeModel|PathsOf)\.",  # their methods are those of the port
]
coverage_statistics_to_stdout = False
coverage_show_missing_items = True  # with `-q -W`, a public name that no page describes ends the build
suppress_warnings = ["misc.highlighting_failure"]  # a page shows what is refused, too

nitpick_ignore_regex = [
    (r"py:\w+", name)
    for name in (
        r"(collections|numpy|os|pathlib|pd)\..*",  # of other packages: the site asks nothing of a network
        r"Axes|Labels",  # matplotlib's, and numpy's array as scikit-learn calls it
        r"(.*\.)?(T|TableT|V_co)",  # type variables
        r"selectrie\.(grammar\.rules|template\.syntax)\..*|RuleSet|TextList|Document",  # nodes of trees
    )
]
"""Types that are shown without a link."""

BUILT_BY_METHODS = ("Engine", "Stream", "PageStream", "server.application.App", "engine.tracing.record.Recording")
"""Classes whose constructors are private, so they are shown without one."""


def show_public_names() -> None:
    """Show every public object as part of the module that promises it."""
    for name in PUBLIC:
        module = import_module(name)
        for item in (getattr(module, item) for item in getattr(module, "__all__", ())):
            if callable(item) and item.__module__.startswith("selectrie") and item.__module__ != "selectrie.errors":
                item.__module__ = name


def link_by_last_name(app: Any, env: Any, node: Any, shown: Any) -> Any:
    """Link a type, whatever its module, to the one public object of that name."""
    last = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or not last[:1].isupper():
        return None
    domain = env.domains.python_domain
    found = [name for name in domain.objects if name.rpartition(".")[2] == last]
    if len(found) != 1:
        return None
    target = domain.objects[found[0]]
    from sphinx.util.nodes import make_refnode

    return make_refnode(app.builder, node["refdoc"], target.docname, target.node_id, shown, found[0])


def read_as_markdown(_app: Any, _what: str, _name: str, _item: Any, _options: Any, lines: list[str]) -> None:
    """Rewrite fenced blocks, and letters after a backtick, as reStructuredText."""

    def separate(found: re.Match[str]) -> str:
        return f"{found[1]}\\ {found[2]}" if found[2] else found[1]

    inside = False
    for i, line in enumerate(lines):
        if line.startswith("```"):
            lines[i], inside = "" if inside else "::", not inside
        else:
            lines[i] = f"    {line}" if inside else re.sub(r"(`[^`]+`)(\w)?", separate, line)
    if lines[:1] == ["Represent a PEP 604 union type"]:  # of an alias without a docstring
        lines.clear()
    if "::" in lines:
        lines.insert(lines.index("::") + 1, "")


def shorten_signature(_app: Any, what: str, name: str, *found: Any) -> tuple[str | None, str | None]:
    """Hide private constructors, and shorten defaults that are records or made anew."""
    signature, returned = found[-2:]
    if what == "class" and name.removeprefix("selectrie.") in BUILT_BY_METHODS:
        return "", None
    return signature and re.sub(r"= (\w+Params)\([^()]*\)|= <[^<>]*>", shorten_default, signature), returned


def shorten_default(found: re.Match[str]) -> str:
    """Return the short form of one default."""
    return f"= {found[1]}()" if found[1] else "= ..."


def setup(app: Any) -> None:
    """Connect the above."""
    from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]

    app.add_lexer("template", TextLexer)
    show_public_names()
    app.connect("autodoc-process-docstring", read_as_markdown)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("missing-reference", link_by_last_name)
