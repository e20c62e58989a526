"""Commands whose options are declared as frozen records, one record for each group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption

from selectrie.cli.flags import flags_of
from selectrie.cli.guard import guarded
from selectrie.cli.option_values import collect, hints_of
from selectrie.cli.traces import noting

Command = Callable[..., int]
"""Takes option records, returns an exit code."""


class SectionedCommand(TyperCommand):
    """A command whose help shows options under the headings of their groups.

    An option of one value that is given twice is refused: nothing says which was meant.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option in given:
            takes_one = isinstance(option, TyperOption) and not (option.multiple or option.is_flag or option.count)
            if takes_one and given.count(option) > 1 and not ctx.resilient_parsing:
                ctx.fail(f"Option {' / '.join(map(repr, option.opts))} is given twice, and takes one value.")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                heading = getattr(parameter, "rich_help_panel", None) or "Other"
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=26)


def command(app: typer.Typer) -> Callable[[Command], Command]:
    """Register a function of option records as a command.

    The fields of its records become the options. Each parameter's type is a frozen
    dataclass whose fields are `Annotated[type, typer.Option(...)]` with defaults. The
    first line of its docstring is the heading of the group in the help. Errors become
    exit codes (`guarded`).
    """

    def register(function: Command) -> Command:
        groups = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
        parameters = [parameter for group in groups.values() for parameter in _parameters(group)]

        def run(**values: Any) -> None:
            verbose = bool(values.get("verbose"))
            guarded(
                lambda: _run(function, groups, values),
                verbose=verbose,
                flags=flags_of(groups),
            )

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        app.command(function.__name__, cls=SectionedCommand, help=_help(function))(run)
        return function

    return register


def _run(function: Command, groups: Mapping[str, type[Any]], values: Mapping[str, Any]) -> int:
    with noting(function.__name__, groups, values):
        return function(**{name: collect(group, values) for name, group in groups.items()})


def _help(function: Command) -> str:
    r"""Return the docstring of a command.

    A `\b` on a line of its own keeps the lines of its paragraph apart.
    """
    return (inspect.getdoc(function) or "").replace("\\b\n", "\b\n")


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = hints_of(group)
    result = []
    for field in fields(group):
        # Groups that share an option may have different headings.
        option = copy(hints[field.name].__metadata__[0])
        option.rich_help_panel = _heading(group)
        hint = Annotated[hints[field.name].__origin__, option]  # type: ignore[valid-type]  # made as typer reads it
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        result.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    return result


def _heading(group: type[Any]) -> str:
    return (inspect.getdoc(group) or group.__name__).splitlines()[0].rstrip(".")
