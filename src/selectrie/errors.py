"""Every exception of selectrie, one tree, split by who can mend it.

```
SelectrieError
├── RequestError            the caller's: exit 2, HTTP 400
│   ├── OptionError             a value that is not one of, or not within, what is allowed
│   ├── ChoiceError             the choice set: none, empty without terminator, a bad prior
│   ├── TextError               text that cannot become tokens (lone surrogate, bad UTF-8)
│   ├── PromptError             empty without BOS, chat without template, malformed messages
│   ├── PromptTooLongError      prompt and choices do not fit the context
│   ├── TokenRangeError         a token id that does not exist
│   ├── GrammarError            a grammar that cannot be read or compiled, or that grows without bound
│   ├── TemplateError           a template that cannot be read, or rendered with the values given
│   ├── DeadEndError            no token is both allowed and possible
│   ├── NothingFoundError       a search of a grammar that ended without a text
│   ├── InputFileError          a choices, prompt or chat file: path, line, reason
│   ├── OutputError             standard output that cannot be written
│   ├── DeadlineError           the deadline passed before there was an answer
│   ├── QueueFullError          more work waits than may wait
│   ├── ClosedError             used after close()
│   └── ForkedError             used in a forked child process
├── ModelError              the model or its back end: exit 3, HTTP 502
│   ├── ModelFileError          missing, corrupt or truncated file
│   ├── UnsupportedModelError   a model that cannot score text, or an object that cannot be shared
│   ├── MissingExtraError       an optional package is not installed
│   ├── ClusterError            work that the actors of a cluster could not do
│   ├── CapacityError           one call or one task does not fit
│   │   └── MemoryBudgetError       a model does not fit the budget of a registry
│   ├── DecodeError             the back end failed; the tree is as it was
│   │   └── DecodeInterrupted   the decode was told to stop
│   └── NonFiniteLogitsError    NaN or +inf from the model
├── CancelledError          the task was cancelled: exit 130
└── InternalError           ours: exit 70, HTTP 500
    ├── NodeError               a dead or wrong node
    └── ProtocolError           ask/tell out of step
```

Every error has a stable `code`, its values as attributes, and a message that names the value and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar


class SelectrieError(Exception):
    """Root of the tree. request: index of the request that was refused or failed, where many were made at once.
    slot: kind and name of the slot of a template where it did, and its place: "gen 'x' at page.tmpl:3:8"."""

    code: ClassVar[str] = "selectrie"
    exit_code: ClassVar[int] = 70
    request: int | None = None
    slot: str | None = None

    def __str__(self) -> str:
        text = super().__str__() if self.slot is None else f"{self.slot}: {super().__str__()}"
        text = text if self.request is None else f"request {self.request}: {text}"
        return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be printed

    def __reduce__(self) -> tuple[Callable[..., SelectrieError], tuple[Any, ...]]:
        """Copied, and sent between processes, by what it holds: the arguments it was made of are not kept."""
        return _restored, (type(self), self.args, dict(self.__dict__))


class RequestError(SelectrieError):
    """The caller can mend it."""

    code = "request"
    exit_code = 2


class OptionError(RequestError, ValueError):
    """A value that is not allowed."""

    code = "option"

    def __init__(self, name: str, value: object, allowed: str) -> None:
        self.name, self.value, self.allowed = name, value, allowed
        super().__init__(
            f"{name} is not given; give {allowed}" if value is None else f"{name}={of_value(value)}: expected {allowed}"
        )


class ChoiceError(RequestError, ValueError):
    """The set of choices cannot be decided on."""

    code = "choice"

    def __init__(self, reason: str, *, index: int | None = None, choice: str | None = None) -> None:
        self.reason, self.index, self.choice = reason, index, choice
        where = "" if index is None else f"choice {index}" + ("" if choice is None else f" ({_clip(choice)})") + ": "
        super().__init__(where + reason)


class TextError(RequestError, ValueError):
    """Text that cannot become tokens."""

    code = "text"

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what}: {reason}")


class PromptError(RequestError, ValueError):
    """A prompt that gives no context."""

    code = "prompt"


class PromptTooLongError(RequestError):
    """Prompt and choices do not fit the context."""

    code = "prompt_too_long"

    def __init__(self, *, needed_tokens: int, available_tokens: int, remedy: str) -> None:
        self.needed_tokens, self.available_tokens, self.remedy = needed_tokens, available_tokens, remedy
        super().__init__(f"needs {needed_tokens} tokens, the context holds {available_tokens}; {remedy}")


class TokenRangeError(RequestError, ValueError):
    """A token id that does not exist."""

    code = "token_range"

    def __init__(self, token: int, n_vocabulary: int) -> None:
        self.token, self.n_vocabulary = token, n_vocabulary
        super().__init__(f"token {token} does not exist: ids run from 0 to {n_vocabulary - 1}")


class GrammarError(RequestError, ValueError):
    """A grammar that cannot be read, that has no texts, or that needs more than its limits.

    line, column: where in its source, from 1 on, column in characters; None where there is no single place. excerpt: that
    line of the source, or "". Where all three are known the message shows the line with a caret below the place.
    """

    code = "grammar"

    def __init__(self, reason: str, *, line: int | None = None, column: int | None = None, excerpt: str = "") -> None:
        self.reason, self.line, self.column, self.excerpt = reason, line, column, excerpt
        where = "" if line is None else f"line {line}: " if column is None else f"line {line}, column {column}: "
        super().__init__(where + reason + _marked(excerpt, column))


class TemplateError(RequestError, ValueError):
    """A template that cannot be read, or rendered with the values given.

    name: of the file, or "<template>". line, column: from 1 on, column in characters; None where there is no single place.
    excerpt: that line of the source, or "". Where all are known the message shows the line with a caret below the place.
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
        super().__init__(f"{where}: {reason}{_marked(excerpt, column)}")


class DeadEndError(RequestError):
    """No token is both allowed and possible."""

    code = "dead_end"

    def __init__(self, n_allowed: int) -> None:
        self.n_allowed = n_allowed
        super().__init__(
            f"none of the {n_allowed} tokens allowed here is possible; allow more, or forbid less by `logit_bias`"
        )


class NothingFoundError(RequestError):
    """A search of a grammar, or draws from it, that ended without a text.

    grammar: its name. reason: why there is none. remedy: what helps.
    """

    code = "nothing_found"

    def __init__(self, grammar: str, reason: str, remedy: str) -> None:
        self.grammar, self.reason, self.remedy = grammar, reason, remedy
        super().__init__(f"no text of {grammar} was found: {reason}; {remedy}")


class InputFileError(RequestError):
    """A file of the caller's that cannot be read."""

    code = "input_file"

    def __init__(self, path: str, reason: str, *, line: int | None = None) -> None:
        self.path, self.reason, self.line = path, reason, line
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {reason}")


class OutputError(RequestError):
    """Standard output that cannot be written: closed, or on a disk that is full."""

    code = "output"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"standard output cannot be written: {reason}")


class DeadlineError(RequestError):
    """The deadline passed before there was an answer."""

    code = "deadline"

    def __init__(self, late_s: float) -> None:
        self.late_s = late_s
        super().__init__(f"the deadline passed {late_s:.3g} s ago without an answer; allow more time, or ask for less")


class QueueFullError(RequestError):
    """More work waits than may wait."""

    code = "queue_full"

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(f"{most} requests wait already; try again later, or allow more to wait")


class ClosedError(RequestError):
    """Used after close()."""

    code = "closed"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} is closed; load it again")


class ForkedError(RequestError):
    """Used in a forked child process."""

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
    """A model file that cannot be loaded."""

    code = "model_file"

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class UnsupportedModelError(ModelError):
    """A model that cannot do what is asked."""

    code = "unsupported_model"

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"{name}: {reason}")


class MissingExtraError(ModelError):
    """An optional package is not installed."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        self.what, self.extra = what, extra
        super().__init__(f"{what} needs the extra {extra!r}: pip install 'selectrie[{extra}]'")


class ClusterError(ModelError):
    """Work that the actors of a cluster could not do."""

    code = "cluster"


class CapacityError(ModelError):
    """A call that does not fit; nothing changed."""

    code = "capacity"

    def __init__(self, what: str, *, needed: int, available: int) -> None:
        self.what, self.needed, self.available = what, needed, available
        super().__init__(f"needs {needed} {what}, {available} available")


class MemoryBudgetError(CapacityError):
    """A model that does not fit the memory budget of a registry; nothing was loaded or unloaded.

    needed, available: bytes it takes, and bytes that are free or held by models nobody uses. held: bytes by the name of
    each model in use.
    """

    code = "memory_budget"

    def __init__(self, name: str, *, needed: int, available: int, budget: int, held: Mapping[str, int]) -> None:
        super().__init__("bytes of memory", needed=needed, available=available)
        self.name, self.budget, self.held = name, budget, dict(held)
        holders = ", ".join(f"{one!r} ({_mib(size)})" for one, size in self.held.items())
        reason = f"{_mib(available)} are available, the rest is in use by {holders}; leave one of them, or wait for it"
        if not self.held:
            reason = "more than all of it; raise the budget, or lower n_ctx or n_batch"
        self.args = (f"the model {name!r} needs {_mib(needed)} of a budget of {_mib(budget)}: {reason}",)


class DecodeError(ModelError):
    """The back end failed; the tree is as it was."""

    code = "decode"

    def __init__(self, reason: str, *, return_code: int | None = None) -> None:
        self.reason, self.return_code = reason, return_code
        super().__init__(reason if return_code is None else f"{reason} (return code {return_code})")


class DecodeInterrupted(DecodeError):
    """The decode was told to stop."""

    code = "decode_interrupted"


class NonFiniteLogitsError(ModelError):
    """NaN or +inf from the model, or nothing finite at all: its weights or its kernels are broken."""

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
    """Ours to mend."""

    code = "internal"


class NodeError(InternalError):
    """A dead or wrong node."""

    code = "node"

    def __init__(self, node: int, reason: str) -> None:
        self.node, self.reason = node, reason
        super().__init__(f"node {node}: {reason}")


class ProtocolError(InternalError):
    """Ask and tell out of step."""

    code = "protocol"


@contextmanager
def of_request(index: int | None) -> Iterator[None]:
    """What fails in the block is one request of many: its index goes into the error. None: there is one request alone.

    Not so where all fail together: the engine was closed, or everything was cancelled.
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
def of_slot(slot: str) -> Iterator[None]:
    """What fails in the block is this slot of a template, which goes into the error.

    Not so where the whole page fails (`of_request`), nor in a `TemplateError` that says its place itself.
    """
    try:
        yield
    except (ClosedError, ForkedError, CancelledError):
        raise
    except SelectrieError as error:
        if error.slot is None and not (isinstance(error, TemplateError) and error.line is not None):
            error.slot = slot
        raise


def _restored(kind: type[SelectrieError], args: tuple[Any, ...], values: dict[str, Any]) -> SelectrieError:
    """What `SelectrieError.__reduce__` took apart."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


def _marked(excerpt: str, column: int | None) -> str:
    """The line with a caret below a column (from 1 on), cut to the neighbourhood of the place; "" without either."""
    if not excerpt or column is None:
        return ""
    start = max(0, column - 61)
    shown = "".join(map(_one_wide, excerpt[start : start + 120]))
    return f"\n  {shown}\n  {' ' * (column - 1 - start)}^"


def _one_wide(character: str) -> str:
    """A character as an excerpt shows it: white space as a blank, a lone surrogate,
    which cannot be printed, as U+FFFD."""
    if character in "\t\r\n\v\f":
        return " "
    return "\ufffd" if "\ud800" <= character <= "\udfff" else character


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 20):.1f} MiB"


def _clip(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def of_value(value: object, limit: int = 1000) -> str:
    """A value in a message. One whose repr fails (nested too deeply, an int of too many digits) is told by its type."""
    try:
        told = repr(value)
    except Exception:  # noqa: BLE001 - of a class of the caller's: whatever it raises, the error is about the value
        return f"<{type(value).__name__}>"
    return told if len(told) <= limit else told[: limit - 1] + "…"
