"""Every exception of selectrie, in one tree, grouped by who can fix the cause.

```
SelectrieError
├── RequestError            the caller can fix it: exit 2, HTTP 400
│   ├── OptionError             a value outside the allowed set or range
│   │   ├── ArgumentCountError    a call lacks an argument, or has too many
│   │   ├── IncompatibleOptionsError  two options exclude each other
│   │   ├── ServerOptionError     an option that a server cannot be sent
│   │   ├── UnknownArgumentError  an argument that a call does not have
│   │   └── UnknownOptionError    an option that the model's back end does not have
│   ├── ChoiceError             a bad choice set: none, empty text, a bad prior
│   ├── TextError               not tokenizable text (lone surrogate, bad UTF-8)
│   ├── PromptError             empty, no chat template, malformed messages
│   ├── PromptTooLongError      prompt and choices do not fit the context
│   ├── TooManyRowsError        a request plans more rows than it may
│   ├── WholeRowsError          whole rows of a model that tells parts of them
│   ├── TokenRangeError         a token id that does not exist
│   ├── GrammarError            a grammar that is unreadable or too large
│   ├── TemplateError           a template that cannot be read or rendered
│   ├── DeadEndError            no token is both allowed and possible
│   ├── NothingFoundError       a search of a grammar ended without a text
│   ├── InputFileError          a choices, prompt or chat file: path, line, reason
│   ├── OutputError             standard output cannot be written
│   ├── DeadlineError           the deadline passed before there was an answer
│   ├── QueueFullError          too many tasks would wait
│   ├── ClosedError             used after close()
│   └── ForkedError             used in a forked child process
├── ModelError              the model or its back end failed: exit 3, HTTP 502
│   ├── ModelFileError          missing, corrupt or truncated file
│   │   └── TraceFileError          a trace that is damaged or of another version
│   ├── MissingRowError         a trace does not have a row that is needed
│   ├── MissingTextError        a trace does not have the tokens of a text
│   ├── UnsupportedModelError   it cannot score text, or cannot be shared
│   ├── MissingExtraError       an optional package is not installed
│   ├── ClusterError            work that the actors of a cluster could not do
│   ├── CapacityError           one call or one task does not fit
│   │   └── MemoryBudgetError       a model exceeds the budget of a pool
│   ├── DecodeError             the back end failed; the tree is unchanged
│   │   ├── DecodeInterrupted   the decode was interrupted
│   │   └── ServerError             a server failed, or its answer cannot be right
│   └── NonFiniteLogitsError    NaN or +inf from the model
├── CancelledError          the task was cancelled: exit 130
└── InternalError           a bug in selectrie: exit 70, HTTP 500
    ├── NodeError               a dead or wrong node
    └── ProtocolError           ask and tell are out of step
```

Every error has a stable `code` and its values as attributes. Its message names the
value and the remedy. Options in it are data (`MessageText`), so that each shell, such
as the command line, writes them its own way (`SelectrieError.worded`).
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, final

MAX_QUOTED = 80
"""Maximum number of characters of a value that a message quotes."""


@dataclass(frozen=True, slots=True)
class OptionRef:
    """A mention of an option in a message. `str` writes it for Python.

    Attributes:
        name: Name of the option, as in the records of options: "list_options".
        value: Value that it has or is to get; None if the name alone is meant.
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        return f"`{self.name}`" if self.value is None else f"{self.name}={of_value(self.value)}"


class RefusedOption(OptionRef):
    """The option that a message is about, with the value that is refused, if any."""

    __slots__ = ()

    def __str__(self) -> str:
        name = clip(self.name, MAX_QUOTED)
        return name if self.value is None else f"{name}={of_value(self.value)}"


class Noun(OptionRef):
    """An argument that messages call by a noun, such as "the prompt"."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.name


class Quoted(OptionRef):
    """A value of the caller's. Each shell writes it in its own notation."""

    __slots__ = ()

    def __init__(self, value: object) -> None:
        super().__init__("", value)

    def __str__(self) -> str:
        return of_value(self.value)


THE_PROMPT, THE_STATE = Noun("the prompt"), Noun("the state")


class PythonOnly(str):
    """A part of a message that other shells than Python leave out."""

    __slots__ = ()


Write = Callable[[OptionRef], "str | None"]
"""Writes an option as a shell does; None if the shell does not have it."""


@dataclass(frozen=True, slots=True)
class Remedies:
    """Remedies for an error, any of which is enough. `str` joins them with "or".

    Over HTTP, the caller of a request and the operator of the server are two people,
    so each remedy says whom it is for. In Python and on the command line they are one.

    Attributes:
        remedies: Advice to the caller, such as "lower `max_tokens`".
        operators: Advice to the operator who loads the model, such as "load with a
            larger `n_ctx`".
    """

    remedies: tuple[MessageText, ...]
    operators: tuple[MessageText, ...] = ()

    def __str__(self) -> str:
        return joined([*self.remedies, *self.operators], last=", or ")

    def worded(self, write: Write, operator: Callable[[MessageText], MessageText] | None) -> Remedies:
        """Return the remedies for another shell, as `MessageText.worded` does.

        Remedies that mention an option that the shell does not have are left out.
        """
        had = [one for one in self.remedies if all(write(option) is not None for option in one.options)]
        own = tuple(one.worded(write, operator) for one in had)
        return Remedies(own, self.operators if operator is None else tuple(map(operator, self.operators)))


@final
class MessageText(str):
    """A message, or a part of one, that keeps references to options apart from text.

    As a str, it is the message for Python: "lower `max_tokens`". `worded` returns it
    for another shell, with the option as that shell writes it: "lower --max-tokens".
    Joining and formatting with the methods of str give a plain str, which is only for
    Python; `words`, `remedies` and `joined` keep the references.

    Attributes:
        parts: Plain texts, `PythonOnly` texts, options (`OptionRef`) and remedies, in
            their order.
    """

    __slots__ = ("parts",)
    parts: tuple[str | OptionRef | Remedies, ...]

    def __new__(cls, *parts: str | OptionRef | Remedies) -> MessageText:
        flat = [one for part in parts for one in (part.parts if isinstance(part, MessageText) else (part,))]
        words = super().__new__(cls, "".join(map(str, flat)))
        words.parts = tuple(flat)
        return words

    @property
    def options(self) -> list[OptionRef]:
        """Return the options that the text mentions, without those for an operator."""
        texts = [remedy for one in self.parts if isinstance(one, Remedies) for remedy in one.remedies]
        return [one for one in self.parts if isinstance(one, OptionRef)] + [
            one for text in texts for one in text.options
        ]

    def worded(self, write: Write, operator: Callable[[MessageText], MessageText] | None = None) -> MessageText:
        """Return the text for another shell.

        Args:
            write: Writes an option as the shell does. Remedies with an option that the
                shell does not have are left out, and if none is left, the semicolon
                before them.
            operator: Returns a remedy of the operator's for the shell. Without it, they
                stay as they are.
        """
        parts = list[str | OptionRef | Remedies]()
        for one in self.parts:
            if isinstance(one, Remedies):
                parts.append(had := one.worded(write, operator))
                if not had.remedies + had.operators and isinstance(parts[-2], str):
                    parts[-2] = parts[-2].removesuffix("; ")
            elif isinstance(one, OptionRef):
                written = write(one)
                parts.append(one if written is None else written)
            elif not isinstance(one, PythonOnly):
                parts.append(one)
        return MessageText(*parts)


def words(template: str, *values: object) -> MessageText:
    """Return a text with options, written in backticks: "set `exact=False`".

    Each "{}" is replaced by the next value, whose text is not read: backticks in it
    mean nothing. A value may be an `OptionRef` or a `MessageText`. In backticks, "{}"
    is the value of the option.
    """
    rest, parts = iter(values), list[str | OptionRef]()
    for index, piece in enumerate(template.split("`")):
        if index % 2:
            name, _, value = piece.partition("=")
            parts.append(OptionRef(name, next(rest) if value == "{}" else literal_eval(value) if value else None))
            continue
        first, *others = piece.split("{}")
        parts.append(first)
        for text in others:
            shown = next(rest)
            parts += [shown if isinstance(shown, str | OptionRef) else str(shown), text]
    return MessageText(*parts)


def remedies(*texts: str, operator: str = "") -> MessageText:
    """Return a text that lists remedies, any of which is enough (`Remedies`).

    Args:
        texts: Advice to the caller: templates of `words`, or texts with options. The
            remedies of a nested list are added one by one; "" is ignored.
        operator: Advice to the operator who loads the model, as a template of `words`.
    """
    own, operators = list[MessageText](), [_as_words(operator)] if operator else []
    for text in map(_as_words, texts):
        inner = text.parts[0] if len(text.parts) == 1 else None
        own += inner.remedies if isinstance(inner, Remedies) else [text] if text else []
        operators += inner.operators if isinstance(inner, Remedies) else ()
    return MessageText(Remedies(tuple(own), tuple(operators)))


def _as_words(text: str) -> MessageText:
    return text if isinstance(text, MessageText) else words(text)


def renamed(names: Mapping[str, str]) -> Write:
    """Return a `Write` that gives options other names, and values as in JSON.

    Args:
        names: Maps option names to other names; with "=", a value replaces that of the
            option. A shell does not have any other option.
    """

    def written(option: OptionRef) -> str | None:
        name, bracket, rest = option.name.partition("[")
        if isinstance(option, Quoted):
            return as_json(option.value)
        if isinstance(option, RefusedOption):
            own = str(RefusedOption(names.get(name, name) + bracket + rest))
            return own if option.value is None else f"{own}={as_json(option.value)}"
        if name not in names:
            return None
        own = names[name] + bracket + rest
        if "=" in own:
            return own
        return str(OptionRef(own)) if option.value is None else f"{own}={json.dumps(option.value, default=str)}"

    return written


def joined(items: Iterable[str | OptionRef], *, last: str = ", ") -> MessageText:
    """Join texts or options with commas, and `last` before the last one."""
    parts = [part for one in items for part in (", ", one)][1:]
    parts[-2:-1] = [last] if len(parts) > 1 else []
    return MessageText(*parts)


LOAD_HERE = "load the model here"
"""Remedy if a server does not reveal enough about its model."""
LESS_MEMORY = remedies(operator="ask for a smaller `n_ctx`, or free memory")
"""Remedy if there is no memory for a context."""


class SelectrieError(Exception):
    """The base class of all exceptions of selectrie.

    Attributes:
        code: Stable name of the kind of error.
        exit_code: Exit status of the command.
        request: Index of the request that was refused or failed, if many were made at
            once. None for a single one, also where a list of one was given, and for an
            error that belongs to all of them.
        slot: Kind, name and position of the slot of a template that was refused or
            failed: "gen 'x' at page.tmpl:3:8".
    """

    code: ClassVar[str] = "selectrie"
    exit_code: ClassVar[int] = 70
    request: int | None = None
    slot: str | None = None

    def __str__(self) -> str:
        return self._add_place(super().__str__(), self.slot)

    def worded(
        self, write: Write, operator: Callable[[MessageText], MessageText] | None = None, *, max_slot: int | None = None
    ) -> str:
        """Return the message for another shell than Python.

        Args:
            write: Writes an option as the shell does.
            operator: Returns an operator's remedy for the shell (`MessageText.worded`).
            max_slot: Maximum number of characters of `slot` in it.
        """
        own = self.args[0] if self.args else ""
        text = own.worded(write, operator) if isinstance(own, MessageText) else super().__str__()
        return self._add_place(text, self.slot if self.slot is None or max_slot is None else clip(self.slot, max_slot))

    def _add_place(self, text: str, slot: str | None) -> str:
        """Return the message with the slot and the index of the request before it."""
        text = text if slot is None else f"{slot}: {text}"
        text = text if self.request is None else f"request {self.request}: {text}"
        return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be printed

    def __reduce__(self) -> tuple[Callable[..., SelectrieError], tuple[Any, ...]]:
        """Return the parts from which `_restore_error` builds a copy.

        The constructor is not called, because its arguments are not kept.
        """
        return _restore_error, (type(self), self.args, dict(self.__dict__))


class RequestError(SelectrieError):
    """The request is wrong; the caller can fix it."""

    code = "request"
    exit_code = 2


class OptionError(RequestError, ValueError):
    """An option has a value that is not allowed.

    The message is built from the name of the option, its value, and the allowed
    values in words.
    """

    code = "option"

    def __init__(self, name: str, value: object, allowed: str) -> None:
        self.name, self.value, self.allowed = name, value, allowed
        verb = " is not given; give " if value is None else ": expected "
        super().__init__(MessageText(RefusedOption(name, value), verb, allowed))


class IncompatibleOptionsError(OptionError):
    """An option was given that another one excludes.

    Attributes:
        name: Name of the option.
        value: Its value, if other values of it are not excluded; else None.
        allowed: Advice on what to do instead.
        other: The option that excludes it, in words, or "a grammar".
    """

    def __init__(self, name: str | OptionRef, other: str | OptionRef, remedy: str) -> None:
        option = OptionRef(name) if isinstance(name, str) else name
        super().__init__(option.name, option.value, remedy)
        self.other = str(other)
        self.args = (MessageText(option, " cannot be combined with ", other, "; ", remedy),)


class UnknownOptionError(OptionError):
    """An option was given that the back end of the model does not have.

    Attributes:
        name: Name of the option.
        value: Its value.
        allowed: The options that there are, in words.
        backend: Name of the back end.
        names: Names of the options that it has.
    """

    code = "unknown_option"

    def __init__(
        self, name: str, value: object, *, backend: str, names: Sequence[str], meant: str | None = None
    ) -> None:
        allowed = joined(map(OptionRef, names))
        super().__init__(name, value, allowed)
        self.backend, self.names = backend, tuple(names)
        end = "" if meant is None else words("; did you mean {}?", OptionRef(meant))
        text = "{} is not an option of the back end {}, which has {}{}"
        self.args = (words(text, OptionRef(name), backend, allowed, end),)


class UnknownArgumentError(OptionError, TypeError):
    """A call was given an argument that it does not have.

    Attributes:
        name: Name of the argument.
        value: None.
        allowed: Advice on what to write instead.
        call: Name of the function or method.
    """

    code = "unknown_argument"

    def __init__(self, name: str, call: str, advice: str) -> None:
        super().__init__(name, None, advice)
        self.call = call
        self.args = (f"{call} has no argument {name!r}; {advice}",)


class ArgumentCountError(OptionError, TypeError):
    """A call lacks an argument, or has more of them than it takes.

    Attributes:
        name: Name of the argument.
        value: None.
        allowed: What is wrong, and what to write instead.
        call: Name of the function or method.
    """

    code = "argument_count"

    def __init__(self, name: str, call: str, advice: str) -> None:
        super().__init__(name, None, advice)
        self.call = call
        self.args = (f"{call} {advice}",)


class ServerOptionError(OptionError):
    """An option cannot be sent to the server that generates the text.

    Nothing was requested of the server.

    Attributes:
        name: Name of the option.
        value: Its value.
        allowed: Advice on what to do instead.
        server: Name that the server gives itself.
        reason: Description of the server's behaviour, as the end of a sentence.
    """

    code = "server_option"

    def __init__(self, name: str, value: object, *, server: str, reason: str, remedy: str) -> None:
        super().__init__(name, value, remedy)
        self.server, self.reason = server, reason
        self.args = (words("{}: {} {}; {}", RefusedOption(name, value), server, reason, remedy),)


class ChoiceError(RequestError, ValueError):
    """The set of choices is not valid: it is empty, or one of them cannot be scored.

    Attributes:
        reason: Description of the error.
        index: Index of the choice; None if it is about all.
        choice: The text of the choice, if it is known.
        of_prior: Whether the error is about the prior weights of the choices.
    """

    code = "choice"

    def __init__(
        self, reason: str, *, index: int | None = None, choice: str | None = None, of_prior: bool = False
    ) -> None:
        self.reason, self.index, self.choice, self.of_prior = reason, index, choice, of_prior
        text = "" if choice is None else f" ({clip(choice, 60)!r})"
        super().__init__(MessageText("" if index is None else f"choice {index}{text}: ", clip(reason)))


class TextError(RequestError, ValueError):
    """A text cannot be tokenized."""

    code = "text"

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(MessageText(what, ": ", reason))


class PromptError(RequestError, ValueError):
    """A prompt is empty or malformed, or the model has no chat template.

    Attributes:
        where: Path to the invalid part: "prompt[0]['content']"; "" for the whole.
    """

    code = "prompt"

    def __init__(self, reason: str, *, where: str = "") -> None:
        self.where = where
        super().__init__(MessageText(where, " ", reason) if where else reason)


class PromptTooLongError(RequestError):
    """Prompt and choices do not fit the context.

    Attributes:
        required_tokens: Number of tokens that they take; with `is_least`, a lower bound
            on it that is known without encoding them.
        available_tokens: Number of tokens that the context holds, without its prefix.
        prefix_tokens: Number of tokens of the prefix.
        remedy: Advice on what to change.
        larger_context: Advice on how to get a larger context, as in `Limits`; "" if
            there is none.
        is_least: Whether `required_tokens` is such a bound.
    """

    code = "prompt_too_long"

    def __init__(
        self,
        *,
        required_tokens: int,
        available_tokens: int,
        remedy: str,
        larger_context: str = "",
        prefix_tokens: int = 0,
        is_least: bool = False,
    ) -> None:
        self.required_tokens, self.available_tokens, self.is_least = required_tokens, available_tokens, is_least
        self.remedy, self.larger_context, self.prefix_tokens = remedy, larger_context, prefix_tokens
        advice = remedies(remedy, larger_context)
        behind = f" behind its prefix of {prefix_tokens}" if prefix_tokens else ""
        needs = f"needs {'at least ' if is_least else ''}{required_tokens} tokens"
        super().__init__(MessageText(f"{needs}, the context holds {available_tokens}{behind}; ", advice))

    def with_remedy(self, remedy: str) -> PromptTooLongError:
        """Return the error with other advice to the caller."""
        same = {name: value for name, value in vars(self).items() if name not in ("request", "slot")}
        return PromptTooLongError(**{**same, "remedy": remedy})


class TooManyRowsError(RequestError):
    """A request plans more rows of the model than it may.

    Attributes:
        planned_rows: Number of rows that it plans.
        max_rows: Number of rows that it may plan.
    """

    code = "too_many_rows"

    def __init__(self, planned_rows: int, max_rows: int) -> None:
        self.planned_rows, self.max_rows = planned_rows, max_rows
        super().__init__(
            f"the request plans {planned_rows} rows of the model: expected at most {max_rows}; ask for less"
        )


class WholeRowsError(RequestError):
    """A request needs whole rows of a model that reveals only parts of them.

    Attributes:
        what: Name of the request, or of its part that reads whole rows.
        remedy: Advice on what to do instead.
    """

    code = "whole_rows"

    def __init__(self, what: str, remedy: str = "use `select`, `rank` or `score`") -> None:
        self.what, self.remedy = what, remedies(remedy, operator=LOAD_HERE)
        some = " reads the probability of every token, and this model tells those of some only; "
        super().__init__(MessageText(what, some, self.remedy))


class TokenRangeError(RequestError, ValueError):
    """A token id does not exist."""

    code = "token_range"

    def __init__(self, token: int, n_vocabulary: int) -> None:
        self.token, self.n_vocabulary = token, n_vocabulary
        super().__init__(f"token {token} does not exist: ids run from 0 to {n_vocabulary - 1}")


class GrammarError(RequestError, ValueError):
    """A grammar cannot be read, has no texts, or exceeds its limits.

    If line, column and excerpt are known, the message shows the line with a caret below
    the position.

    Attributes:
        reason: Description of the error.
        line: Line in the source, from 1; None if there is no single position.
        column: Column in characters, from 1; None if there is no single position.
        excerpt: The source text of that line, or "".
        pointer: JSON pointer to the wrong part of a JSON Schema; "" if it is not known.
    """

    code = "grammar"

    def __init__(
        self,
        reason: str,
        *,
        line: int | None = None,
        column: int | None = None,
        excerpt: str = "",
        pointer: str = "",
    ) -> None:
        self.reason, self.line, self.column, self.excerpt, self.pointer = reason, line, column, excerpt, pointer
        where = "" if line is None else f"line {line}: " if column is None else f"line {line}, column {column}: "
        super().__init__(MessageText(where, reason, _mark_column(excerpt, column)))


class TemplateError(RequestError, ValueError):
    """A template cannot be read, or cannot be rendered with the given values.

    If line, column and excerpt are known, the message shows the line with a caret below
    the position.

    Attributes:
        reason: Description of the error.
        name: Name of the file, or "<template>".
        line: Line in the source, from 1; None if there is no single position.
        column: Column in characters, from 1; None if there is no single position.
        excerpt: The source text of that line, or "".
    """

    code = "template"

    def __init__(
        self,
        reason: str,
        *,
        name: str = "<template>",
        line: int | None = None,
        column: int | None = None,
        excerpt: str = "",
    ) -> None:
        self.reason, self.name, self.line, self.column, self.excerpt = reason, name, line, column, excerpt
        where = name if line is None else f"{name}:{line}" if column is None else f"{name}:{line}:{column}"
        super().__init__(MessageText(where, ": ", reason, _mark_column(excerpt, column)))


class DeadEndError(RequestError):
    """No token is both allowed and possible.

    `n_allowed` is the number of allowed tokens.
    """

    code = "dead_end"

    def __init__(self, n_allowed: int) -> None:
        self.n_allowed = n_allowed
        super().__init__(
            words(
                "none of the {} tokens allowed here is possible; {}",
                n_allowed,
                remedies("allow more", "forbid less by `logit_bias`"),
            )
        )


class NothingFoundError(RequestError):
    """A search of a grammar, or a draw from it, ended without a text.

    Attributes:
        grammar: Name of the grammar.
        reason: Why there is no text.
        remedy: Advice on what to change.
    """

    code = "nothing_found"

    def __init__(self, grammar: str, reason: str, remedy: str) -> None:
        self.grammar, self.reason, self.remedy = grammar, reason, remedy
        super().__init__(words("no text of {} was found: {}; {}", grammar, reason, remedy))


class InputFileError(RequestError):
    """An input file cannot be read."""

    code = "input_file"

    def __init__(self, path: str, reason: str, *, line: int | None = None) -> None:
        self.path, self.reason, self.line = path, reason, line
        super().__init__(MessageText(clip(path), "" if line is None else f":{line}", ": ", clip(reason)))


class OutputError(RequestError):
    """Standard output cannot be written: it is closed, or its disk is full."""

    code = "output"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"standard output cannot be written: {reason}")


class DeadlineError(RequestError):
    """The deadline passed before there was an answer.

    `late_s` is the number of seconds since the deadline.
    """

    code = "deadline"

    def __init__(self, late_s: float) -> None:
        self.late_s = late_s
        super().__init__(f"the deadline passed {late_s:.3g} s ago without an answer; allow more time, or ask for less")


class QueueFullError(RequestError):
    """Too many tasks would wait.

    Attributes:
        max_waiting: Maximum number of tasks that wait to begin.
        n_tasks: Number of tasks of the request that was refused.
    """

    code = "queue_full"

    def __init__(self, max_waiting: int, *, n_tasks: int) -> None:
        self.max_waiting, self.n_tasks = max_waiting, n_tasks
        tasks = "one more" if n_tasks == 1 else f"{n_tasks} more"
        remedy = "ask for fewer at once" if n_tasks > max_waiting else "try again later"
        super().__init__(
            words(
                "at most {} tasks may wait, which leaves no room for {}; {}",
                max_waiting,
                tasks,
                remedies(remedy, operator="raise max_waiting"),
            )
        )


class ClosedError(RequestError):
    """An object was used after it was closed."""

    code = "closed"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} is closed; load it again")


class ForkedError(RequestError):
    """An engine was used in a child process made by `fork`."""

    code = "forked"

    def __init__(self) -> None:
        super().__init__(
            "this engine was loaded in a parent process; load it again in the child, or start children by 'spawn'"
        )


class ModelError(SelectrieError):
    """The model or its back end failed."""

    code = "model"
    exit_code = 3


class ModelFileError(ModelError):
    """A model file cannot be loaded."""

    code = "model_file"

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(MessageText(clip(path), ": ", clip(reason)))


class TraceFileError(ModelFileError):
    """A trace cannot be read: it is damaged, or not a trace of this version."""

    code = "trace_file"


class MissingRowError(ModelError):
    """A trace does not have a row, or a value of it, that a request needs.

    Attributes:
        path: The token path before the row, as text.
        what: The value that is missing.
        trace: The file.
    """

    code = "missing_row"

    def __init__(self, path: str, what: str, trace: str) -> None:
        self.path, self.what, self.trace = path, what, trace
        shown = path if len(path) <= MAX_QUOTED else f"…{path[1 - MAX_QUOTED :]}"
        super().__init__(
            f"{clip(trace)} does not have {what} after '{shown}'; ask what was recorded, or record this request too"
        )


class MissingTextError(ModelError):
    """A trace does not have the tokens of a text, or what a chat was rendered to.

    Attributes:
        text: The text; "" for a chat.
        trace: The file.
    """

    code = "missing_text"

    def __init__(self, text: str, trace: str) -> None:
        self.text, self.trace = text, trace
        what = f"the tokens of {of_value(text)}" if text else "what the model's chat template makes of these messages"
        super().__init__(
            f"{clip(trace)} does not have {what}; ask what was recorded, or load it with the model's tokenizer "
            "(tokenizer=…)"
        )


class UnsupportedModelError(ModelError):
    """A model does not support what a request needs, or an object cannot be shared."""

    code = "unsupported_model"

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(MessageText(name, ": ", reason))


class MissingExtraError(ModelError):
    """An optional package is not installed."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        self.what, self.extra = what, extra
        super().__init__(f"{what} needs the extra {extra!r}: pip install '{_requirement(extra)}'")


def _requirement(extra: str) -> str:
    """Return the package with an extra as pip takes it, from where it was installed.

    A checkout and a wheel are named by their URL (PEP 610), as no index has them.
    """
    from importlib import metadata  # an error is the only one to need it

    try:
        origin = json.loads(metadata.distribution("selectrie").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    if "url" not in origin:
        return f"selectrie[{extra}]"
    system = origin.get("vcs_info", {}).get("vcs")  # such as git
    return f"selectrie[{extra}] @ {system + '+' if system else ''}{origin['url']}"


class ClusterError(ModelError):
    """The actors of a Ray cluster could not do the work."""

    code = "cluster"


class CapacityError(ModelError):
    """A call does not fit the model's limits; nothing has changed."""

    code = "capacity"

    def __init__(self, what: str, *, required: int, available: int) -> None:
        self.what, self.required, self.available = what, required, available
        super().__init__(f"needs {required} {what}, {available} available")


class MemoryBudgetError(CapacityError):
    """A model does not fit the memory budget of a `ModelPool`.

    Nothing was loaded or unloaded.

    Attributes:
        name: Name of the model.
        required: Number of bytes that the model takes.
        available: Bytes that are free or held by models that are not in use.
        budget: Bytes of the whole budget.
        held: Number of bytes of each model in use, by its name.
        required_fast: Number of bytes that it takes with `precision="fast"`, if it was
            to be opened as `exact` and that would be enough less; else None.
        less_memory: Advice on how its back end takes less memory; "" if there is none.
    """

    code = "memory_budget"

    def __init__(
        self,
        name: str,
        *,
        required: int,
        available: int,
        budget: int,
        held: Mapping[str, int],
        required_fast: int | None = None,
        less_memory: str = "",
    ) -> None:
        super().__init__("bytes of memory", required=required, available=available)
        self.name, self.budget, self.held, self.required_fast = name, budget, dict(held), required_fast
        self.less_memory = less_memory
        holders = ", ".join(f"{one!r} ({_mib(size)})" for one, size in self.held.items())
        reason = f"{_mib(available)} are available, the rest is in use by {holders}; release one, or wait for it"
        if not self.held:
            fast = "" if required_fast is None else f"load it with `precision='fast'` ({_mib(required_fast)})"
            faster = [remedies(operator=one) for one in (fast, "raise the budget") if one]
            reason = words("that is more than all of it; {}", remedies(*faster, less_memory))
        self.args = (MessageText(f"the model {name!r} needs {_mib(required)} of a budget of {_mib(budget)}: ", reason),)


class DecodeError(ModelError):
    """The back end failed; the tree is unchanged."""

    code = "decode"

    def __init__(self, reason: str, *, return_code: int | None = None) -> None:
        self.reason, self.return_code = reason, return_code
        super().__init__(reason if return_code is None else f"{reason} (return code {return_code})")


class DecodeInterrupted(DecodeError):
    """A decode was ended by `Model.interrupt`."""

    code = "decode_interrupted"


class ServerError(DecodeError):
    """A server that evaluates a model failed, or its answer cannot be right.

    Attributes:
        url: The address that was asked, without a key.
        status: Status of the answer; None if there was none, or if it was 200.
    """

    code = "server"

    def __init__(self, url: str, reason: str, *, status: int | None = None) -> None:
        self.url, self.status = url, status
        super().__init__(f"{clip(url, 200)}: {reason}")


class NonFiniteLogitsError(ModelError):
    """The model returned NaN, +inf or no finite logit: weights or kernels are bad."""

    code = "non_finite_logits"

    def __init__(self, *, row: int, value: float) -> None:
        self.row, self.value = row, value
        super().__init__(
            f"the model returned {value} in row {row}; its weights are damaged or the quantisation is broken"
        )


class CancelledError(SelectrieError):
    """The task was cancelled."""

    code = "cancelled"
    exit_code = 130

    def __init__(self) -> None:
        super().__init__("the task was cancelled")


class InternalError(SelectrieError):
    """Selectrie has a bug."""

    code = "internal"


class NodeError(InternalError):
    """A node does not exist any more, or is the wrong one for a call."""

    code = "node"

    def __init__(self, node: int, reason: str) -> None:
        self.node, self.reason = node, reason
        super().__init__(f"node {node}: {reason}")


class ProtocolError(InternalError):
    """A task and its driver do not follow the ask-and-tell protocol."""

    code = "protocol"


class UnreadRowError(ProtocolError):
    """A task read a value of a row that its `reads` did not name.

    Attributes:
        row: Number of the row.
        what: Description of the value.
    """

    code = "unread_row"

    def __init__(self, row: int, what: str) -> None:
        self.row, self.what = row, what
        super().__init__(f"row {row}: {what} was read, but the task's `reads` does not name it")


@contextmanager
def of_request(index: int | None) -> Iterator[None]:
    """Attach the index of the request to errors raised in the `with` block.

    None means that there is only one request. Errors that affect all requests together
    keep no index: the engine was closed, or everything was cancelled.
    """
    try:
        yield
    except (ClosedError, ForkedError, CancelledError):
        raise
    except SelectrieError as error:
        if error.request is None:
            error.request = index
        raise


@contextmanager
def of_slot(slot: str, names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Attach the slot of a template to errors raised in the `with` block.

    Errors that affect the whole page get none (see `of_request`), nor does a
    `TemplateError` that has a position already.

    Args:
        slot: The slot.
        names: Maps option names to the slot's names for its arguments. Messages then
            mention no other options, except in advice to the operator. None if the
            slot uses the options of the call.
    """
    try:
        yield
    except (ClosedError, ForkedError, CancelledError):
        raise
    except SelectrieError as error:
        if error.slot is None and not (isinstance(error, TemplateError) and error.line is not None):
            error.slot = slot
            if names is not None and error.args and isinstance(error.args[0], MessageText):
                error.args = (error.args[0].worded(renamed(names)), *error.args[1:])
        raise


def _restore_error(kind: type[SelectrieError], args: tuple[Any, ...], values: dict[str, Any]) -> SelectrieError:
    """Return the error from the parts that `SelectrieError.__reduce__` returns."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


def _mark_column(excerpt: str, column: int | None) -> str:
    """Return two lines: the excerpt, and a caret below a column (from 1).

    The excerpt is cut to the neighbourhood of the column. Without a line or a
    column the result is "".
    """
    if not excerpt or column is None:
        return ""
    start = max(0, column - 61)
    shown = "".join(map(_printable, excerpt[start : start + 120]))
    return f"\n  {shown}\n  {' ' * (column - 1 - start)}^"


def _printable(character: str) -> str:
    """Return a character of one column that represents `character` in an excerpt.

    White space becomes a blank. A lone surrogate, which cannot be printed, becomes
    U+FFFD.
    """
    if character in "\t\r\n\v\f":
        return " "
    return "\ufffd" if "\ud800" <= character <= "\udfff" else character


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 20):.1f} MiB"


def clip(text: str, limit: int = 1000) -> str:
    """Return `text`, cut to `limit` characters with "…" at the end if it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clipped(text: str, limit: int = 40) -> str:
    """Return the repr of a text for a message, of at most `limit` characters of it."""
    return repr(clip(text, limit))


def of_value(value: object) -> str:
    """Return the repr of a value for a message, cut to `MAX_QUOTED` characters.

    If the repr fails (nested too deeply, an int of too many digits), the result names
    the type.
    """
    try:
        return clip(repr(value), MAX_QUOTED)
    except Exception:  # noqa: BLE001 - the caller's class may raise anything
        return f"<{type(value).__name__}>"


class Amount(str):
    """A number of something, such as 65 texts, which messages write without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def as_json(value: object) -> str:
    """Return a value as JSON for a message, cut to `MAX_QUOTED` characters.

    A text alone has the quotes that names have in messages; so has a value that JSON
    does not have.
    """
    try:
        written = of_value(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return of_value(value)
    return clip(written.encode("utf-8", "backslashreplace").decode(), MAX_QUOTED)
