"""The command `selectrie render`, which turns a template into one page or many."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selectrie.cli import inputs, requests
from selectrie.cli.groups import STDIN_ROWS, ModelGroup, TemplateArgs, TraceGroup, argument, setting, switch
from selectrie.cli.show import announce, show_json, show_report, show_stream
from selectrie.core.files import SHOWN_SUFFIXES
from selectrie.core.output import visible, write
from selectrie.errors import IncompatibleOptionsError, OptionRef, of_request
from selectrie.options import DEFAULT_RENDERING, RenderParams

if TYPE_CHECKING:
    from selectrie.results import Page
    from selectrie.template.analysis.template import Template

STDIN_NAME = "<stdin>"
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateGroup:
    """Template.

    The options of `selectrie render` that give the template.
    """

    file: str = argument("FILE", "The template, or - for stdin.", MISSING)
    handlebars: bool = switch("The template is written with {{ }}. [default: if its name ends in .hbs, .handlebars]")
    search_path: str | None = setting(
        "FOLDER", "Where included files and grammars are. [default: the template's folder]"
    )


@dataclass(frozen=True, slots=True)
class ValuesGroup:
    """Values (later ones win, --var over --var-file, a row over both).

    The options of `selectrie render` that give the template's values.
    """

    var: list[str] | None = setting("NAME=TEXT", "A value as text, or NAME:=JSON for any other. Repeatable.")
    var_file: list[str] | None = setting("FILE", "A JSON object from name to value (- for stdin). Repeatable.")
    rows: str | None = setting(
        "FILE", f"A page for every row ({SHOWN_SUFFIXES}; - for stdin).", flags="--table --rows", mark=STDIN_ROWS
    )


@dataclass(frozen=True, slots=True)
class RenderingGroup:
    """Rendering.

    The options of `selectrie render` for the engine's work.
    """

    seed: int | None = setting(
        "N",
        "What is drawn has seeds made from N; a draw closer than logits move between layouts "
        "may differ when other work runs. [default: random]",
    )
    max_tokens: int = setting("N", "At most N tokens in a gen that sets no maximum.", DEFAULT_RENDERING.max_tokens)
    template_arg: TemplateArgs = None


@dataclass(frozen=True, slots=True)
class RenderOutput(TraceGroup):
    """Output.

    The options of `selectrie render` for its output.
    """

    check: bool = switch("Check template and values and say what it needs; no model is loaded.")
    stream: bool = switch("Text as it comes.")
    json: bool = switch("One JSON object, with every slot; with --table one a line.")
    explain: bool = switch("Below the page, what was decided at each slot; with --json on stderr.")


def render(
    model: ModelGroup, template: TemplateGroup, values: ValuesGroup, rendering: RenderingGroup, output: RenderOutput
) -> int:
    r"""Render a template, whose slots the model decides.

    Selects are decided by joint log-probability, together with the text that follows
    them. What a template may hold is described in docs/templates.md.

    \b
    selectrie render sheet.tmpl -m model.gguf --var name=Aria --var-file data.json --explain
    selectrie render mail.tmpl --table mails.jsonl --json
    selectrie render --handlebars program.hbs --var 'armors:=["leather", "plate"]'
    selectrie render sheet.tmpl --check
    """
    _check_output(values, output)
    template_args = inputs.parse_template_args(rendering.template_arg or ())
    how = RenderParams(seed=rendering.seed, max_tokens=rendering.max_tokens, template_args=template_args)
    shared_values, rows = _read_values(values)
    read = _read_template(template)
    for name, near in _unused_values(read, [shared_values, *(rows or ())]):
        write(visible(f"warning: the template reads no value called {name!r}{near}"), sys.stderr)
    if output.check:
        if shared_values or rows is not None:
            _check_values(read, shared_values, rows)
        from selectrie.cli.report.results import template_fields, template_report

        if output.json:
            return show_json(template_fields(read), "template")
        return show_report(template_report(read))
    _check_values(read, shared_values, rows)
    with requests.recorded_engine(model, output) as engine:
        if rows is not None:
            with announce("rendering …"):
                pages = engine.render_many(read, rows, rendering=how)
            return _write_pages(pages, output, requests.unnamed_model(model))
        if output.stream:
            with engine.stream_render(read, shared_values, rendering=how) as events:
                show_stream(events)
                page = events.page
        else:
            with announce("rendering …"):
                page = engine.render(read, shared_values, rendering=how)
            _write_page(page, output)
        if output.explain:
            _write_explanation(page, output, requests.unnamed_model(model))
    return 0


def _check_output(values: ValuesGroup, output: RenderOutput) -> None:
    """Raise `OptionError` for options that exclude each other."""
    for name, other in (("stream", "json"), ("stream", "check"), ("check", "explain")):
        if getattr(output, name) and getattr(output, other):
            raise IncompatibleOptionsError(name, OptionRef(other), "leave one of them out")
    if output.stream and values.rows is not None:
        raise IncompatibleOptionsError(
            "stream", OptionRef("rows"), "the pages are made side by side; leave one of them out"
        )


def _read_values(group: ValuesGroup) -> tuple[Values, list[Values] | None]:
    """Return the values for all pages and, with --table, the values of each page."""
    shared_values: dict[str, Any] = {}
    for path in group.var_file or ():
        shared_values |= inputs.read_values(path)
    shared_values |= inputs.parse_values(group.var or ())
    if group.rows is None:
        return shared_values, None
    return shared_values, [{**shared_values, **row} for row in inputs.read_rows(group.rows)]


def _read_template(group: TemplateGroup) -> Template:
    # lark: not needed for --help
    """Return the template of a file or of standard input."""
    from selectrie.template.analysis.template import Template

    dialect = "handlebars" if group.handlebars else None
    if group.file != inputs.STDIN:
        return Template.from_file(group.file, search_path=group.search_path, dialect=dialect)
    text = inputs.read_text(inputs.STDIN)
    return Template(text, name=STDIN_NAME, search_path=group.search_path or Path(), dialect=dialect or "selectrie")


def _unused_values(template: Template, rows: Sequence[Values]) -> list[tuple[str, str]]:
    """Return each value name that the template does not read, with a hint or "".

    The hint names the value that was probably meant.
    """
    free = [need for need in template.needs if not any(need in row for row in rows)]
    return [
        (name, _hint_at_name(name, template, free))
        for name in dict.fromkeys(n for row in rows for n in template.unused(row))
    ]


def _hint_at_name(name: str, template: Template, free: Sequence[str]) -> str:
    """Return a hint at the name that was probably meant by an unused one, or "".

    Args:
        name: The unused name.
        free: Names that the template needs and that were not given.
    """
    if name in template.slots:
        return "; the model decides it"
    near = difflib.get_close_matches(name, free, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _check_values(template: Template, shared_values: Values, rows: Sequence[Values] | None) -> None:
    """Check the values of every page; an error has the index of its row."""
    if rows is None:
        template.check(shared_values)
        return
    for at, row in enumerate(rows):
        with of_request(at):
            template.check(row)


def _write_page(page: Page, output: RenderOutput) -> None:
    """Write a page as one JSON object, or as text that ends with a line end."""
    if output.json:
        show_json(page.to_dict())
    else:
        write(page.text.removesuffix("\n"), sys.stdout)


def _write_pages(pages: Sequence[Page], output: RenderOutput, unnamed: str | None) -> int:
    """Write every page in the order of the rows, and return the exit code.

    As text, each page follows a line with the index of its row.
    """
    for at, page in enumerate(pages):
        if not output.json:
            write(f"--- row {at}", sys.stdout)
        _write_page(page, output)
        if output.explain:
            _write_explanation(page, output, unnamed)
    return 0


def _write_explanation(page: Page, output: RenderOutput, unnamed: str | None) -> None:
    """Write the report of a page's slots below it, or to stderr with --json."""
    from selectrie.cli.report import terminal
    from selectrie.cli.report.results import page_report

    file = sys.stderr if output.json else sys.stdout
    write("", file)
    terminal.show(page_report(page, unnamed=unnamed), file)
