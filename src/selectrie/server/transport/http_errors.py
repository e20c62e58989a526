"""Errors as HTTP responses, in the shapes of OpenAI's and TypeSafe's APIs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from selectrie import errors

RETRY_AFTER_S = 1
"""Seconds after which a client may try again; the value of `retry-after`."""
_TYPES = {
    **dict.fromkeys((400, 405, 413, 415, 422, 431), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
}
_PARAM = re.compile(r"question (['\"])(questions.*?)\1", re.DOTALL)
_MODEL = re.compile(r"^model (['\"]).*?\1(, |$)", re.DOTALL)
"""The model of a cascade that an error is about."""
_OF_QUESTIONS = frozenset({"examples", "cue", "low", "high", "levels", "instructions"})
"""Options of a question that have the names of its fields."""
_EXAMPLE = re.compile(r"(\bexamples\[\d+\])\[([01])\]")
_MAX_MESSAGE = 2_000
SYSTEMONE = "/v1/systemone"
"""The path whose errors have TypeSafe's shape too."""
_INDEX = re.compile(r"\[(\d+)\]")
_NO_FIELDS: Mapping[str, str] = {}
_NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}


@dataclass(slots=True, eq=False)
class HttpError(Exception):
    """An error that becomes a response.

    Attributes:
        status: The HTTP status.
        code: Stable name of the kind of error.
        message: The reason, and a remedy.
        param: The field of the request that is wrong, or None.
        headers: Further headers.
        detail: The error in TypeSafe's shape; None on paths of other APIs.
    """

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    detail: object = None

    def __post_init__(self) -> None:
        if len(self.message) > _MAX_MESSAGE:
            self.message = self.message[:_MAX_MESSAGE] + "…"

    @property
    def type(self) -> str:
        """Return the kind of error, as OpenAI names it."""
        return _TYPES.get(self.status, "server_error")

    def body(self) -> dict[str, Any]:
        """Return the error as clients read it."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error} if self.detail is None else {"error": error, "detail": self.detail}

    def to_json(self) -> bytes:
        """Return the body of the response as bytes of JSON."""
        return json.dumps(self.body()).encode()


def error_at(endpoint: str, error: HttpError, body: Mapping[str, Any]) -> HttpError:
    """Return an error as the clients of an endpoint read it.

    On `/v1/systemone`, it also has TypeSafe's field `detail`. That is a list for an
    error of the body, whose status is 422 there in place of 400, and an object for
    others.

    Args:
        endpoint: The path of the request.
        error: The error.
        body: The body of the request; {} if it was not read.
    """
    if endpoint != SYSTEMONE:
        return error
    if error.status != 400:
        return replace(error, detail={"error_type": error.type, "message": error.message})
    location = ["body", *_locate(error.param or "", body)]
    return replace(error, status=422, detail=[{"loc": location, "msg": error.message, "type": error.code}])


def _locate(path: str, value: Any) -> Iterator[str | int]:
    """Yield the keys and indices of a path such as `questions.a.criteria[0]`.

    Names of questions may have dots and brackets, so the longest key that fits is
    taken.
    """
    while path:
        own = value if isinstance(value, dict) else {}
        keys = [key for key in own if path == key or path.startswith((f"{key}.", f"{key}["))]
        index = _INDEX.match(path)
        if keys:
            key: str | int = max(keys, key=len)
            path, value = path[len(str(key)) :], value[key]
        elif index:
            key, path = int(index[1]), path[index.end() :]
            value = value[key] if isinstance(value, list) and key < len(value) else None
        else:
            key, _, path = path.partition(".")
        yield key
        path = path.removeprefix(".")


def response_headers(error: HttpError, body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of an error's response with this body, as ASGI sends them."""
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


def retry_error(message: str, *, status: int, code: str) -> HttpError:
    """Return an error with `retry-after`: the client may send the request again."""
    return HttpError(status, code, message, headers={"retry-after": str(RETRY_AFTER_S)})


def draining_error() -> HttpError:
    """Return the error (503) for requests refused because the server shuts down."""
    return retry_error("the server is shutting down", status=503, code="draining")


def unsupported(field_name: str, why: str, *, code: str = "unsupported") -> HttpError:
    """Return the error (400) for a field or an input that is known but not offered."""
    return HttpError(400, code, f"{field_name}: {why}", field_name)


_STATUSES: Sequence[tuple[type[errors.SelectrieError], int]] = (
    (errors.DeadlineError, 504),
    (errors.QueueFullError, 429),
    (errors.ClosedError, 503),
    (errors.ForkedError, 503),
    (errors.MemoryBudgetError, 503),
    (errors.CancelledError, 503),
    (errors.RequestError, 400),
    (errors.SelectrieError, 500),
)
"""HTTP status of each error class; the first class that matches is used."""


def error_of(error: Exception, fields: Mapping[str, str] = _NO_FIELDS) -> HttpError:
    """Return the response for an exception.

    The message of an exception that is not one of ours is replaced, because it may hold
    what a client must not see.

    Args:
        error: The exception; an `HttpError` is returned unchanged.
        fields: Names of the request's fields by option name, as for `message_of`.
    """
    if isinstance(error, HttpError):
        return error
    if not isinstance(error, errors.SelectrieError):
        message = f"the server failed with {type(error).__name__}; its log has more"
        return HttpError(500, "internal", message, headers=_NO_RETRY)
    if isinstance(error, errors.ModelFileError | errors.MissingExtraError):  # they name files of this machine
        return HttpError(500, error.code, "the model cannot be loaded; the server's log has more", headers=_NO_RETRY)
    if isinstance(error, errors.MemoryBudgetError) and not error.held:  # it never fits
        return HttpError(500, error.code, message_of(error), headers=_NO_RETRY)
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    if status in (429, 503):
        return retry_error(message_of(error), status=status, code=error.code)
    param = _find_param(error, fields) if isinstance(error, errors.RequestError) else None
    return HttpError(status, error.code, message_of(error, fields), param, {} if status == 400 else _NO_RETRY)


def message_of(error: errors.SelectrieError, fields: Mapping[str, str] = _NO_FIELDS) -> str:
    """Return the message of an error, in which fields are written as in JSON.

    Each slot is cut to `MAX_QUOTED` characters, because clients name questions and
    fields. Remedies for which the request has no field are left out.

    Args:
        fields: Names of the request's fields by the options that they set.
    """
    return _of_examples(error.worded(errors.renamed(fields), _word_for_operator, max_slot=errors.MAX_QUOTED))


@contextmanager
def errors_at(path: str) -> Iterator[None]:
    """Turn each `RequestError` in the `with` block into an `HttpError` (400).

    Args:
        path: Path to the field that the error is about; the message begins with it.
    """
    try:
        yield
    except errors.RequestError as error:
        raise HttpError(400, error.code, f"{path}: {message_of(error)}", _path_below(path, error)) from error


def _word_for_operator(remedy: errors.MessageText) -> errors.MessageText:
    """Return the words for a remedy that only the server's operator can apply."""
    return errors.MessageText("the operator can ", remedy.worded(_serve_flag))


def _serve_flag(option: errors.OptionRef) -> str:
    """Return the flag of `selectrie serve` that sets an option, as in `--max-n 8`."""
    flag = f"--{option.name.replace('_', '-')}"
    return flag if option.value is None else f"{flag} {option.value}" if option.value else f"without {flag}"


def _find_param(error: errors.RequestError, fields: Mapping[str, str]) -> str | None:
    """Return the path to the field of the request that is wrong, if it is known."""
    if isinstance(error, errors.PromptTooLongError) and isinstance(
        error.remedy, errors.MessageText
    ):  # what can be made shorter
        listed = error.remedy.parts[0]
        options = (listed.remedies[0] if isinstance(listed, errors.Remedies) else error.remedy).options
        if options and options[0].name in fields:
            return fields[options[0].name]
    slot = _MODEL.sub("", error.slot or "", count=1)
    if slot:
        question = _PARAM.match(slot)
        place = question[2] if question else slot
        path = _path_below(place, error)
        head = error.name.partition("[")[0] if isinstance(error, errors.OptionError) else ""
        if path != place or not place.startswith("questions") or head not in fields:
            return errors.clip(path, errors.MAX_QUOTED)
    if isinstance(error, errors.ChoiceError) and "choices" in fields:
        path = "prior" if error.of_prior else fields["choices"]
        has_index = error.index is not None and path in ("prior", "choices", "labels", "documents")
        return f"{path}[{error.index}]" if has_index else path
    place = (
        error.name
        if isinstance(error, errors.OptionError)
        else error.where
        if isinstance(error, errors.PromptError)
        else ""
    )
    place = error.what if isinstance(error, errors.TextError) else place
    name, bracket, rest = place.partition("[")
    own = fields.get(name, name if isinstance(error, errors.OptionError) else "")
    path = _of_examples(f"{own}{bracket}{rest}").replace("['", ".").replace("']", "")
    return errors.clip(path, errors.MAX_QUOTED) if own else None


def _path_below(path: str, error: errors.RequestError) -> str:
    """Return the path to the wrong value of a question, given the question's path.

    A question whose fields are those of the body has another path, such as "labels".
    """
    if not isinstance(error, errors.OptionError) or error.name.partition("[")[0] not in _OF_QUESTIONS:
        return path
    return f"{path}." * path.startswith("questions") + _of_examples(error.name)


def _of_examples(text: str) -> str:
    """Return a text with the paths of examples as in requests: `examples[0].answer`."""
    return _EXAMPLE.sub(lambda found: found[1] + (".answer" if found[2] == "1" else ".state"), text)
