"""The command `selectrie serve`, which answers over HTTP."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from selectrie.cli import requests
from selectrie.cli.arguments import TablesOf
from selectrie.cli.groups import STDIN_JSON, CascadeConfidence, ConfigGroup, ModelGroup, argument, setting, switch
from selectrie.core.output import write
from selectrie.errors import IncompatibleOptionsError, MissingExtraError, OptionError, words
from selectrie.options.checks import number

if TYPE_CHECKING:
    from selectrie.engine.engine import Engine
    from selectrie.engine.pool import ModelPool
    from selectrie.server.application import App

_NAMED = re.compile(r"([\w.-]+)=")
"""Matches the beginning of an argument that names its model."""
_SIZE = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?)(?P<unit>[KMGT])(iB)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelsGroup:
    """Several models.

    The arguments and options of a server with several models.
    """

    models: list[str] | None = argument(
        "[NAME=]MODEL",
        "Models as for --model, of which a request names one. In a file of --config: tables [models.NAME].",
        mark=TablesOf(ModelGroup, leaves_out=("untrusted", "verbose")),
    )
    memory: str | None = setting(
        "SIZE",
        "Memory of all loaded models together: 8G, 500M. The one unused for longest is unloaded. [default: no limit]",
    )
    alias: list[str] | None = setting("ALIAS=NAME", "A further name of a model. Repeatable.")
    cascade: list[str] | None = setting(
        "NAME=A,B,…", "A name for models of which each decides what those before it are not sure of. Repeatable."
    )
    cascade_confidence: CascadeConfidence = "0.8"


@dataclass(frozen=True, slots=True)
class AddressGroup:
    """Address.

    The options that say where the server listens and who may ask.
    """

    host: str = setting("ADDRESS", "Address to listen on; others than loopback need keys.", "127.0.0.1")
    port: int = setting("N", "Port to listen on; 0 for any free one.", 8080)
    api_key_file: str | None = setting("FILE", "API keys, one a line; requests must have one.")
    no_auth: bool = switch("Listen beyond loopback without keys: everybody who can connect may ask.")
    allowed_host: list[str] | None = setting("NAME", "A further Host, without its port. Repeatable.")
    cors_origin: list[str] | None = setting("ORIGIN", "An origin whose pages may read answers. Repeatable.")


@dataclass(frozen=True, slots=True)
class ServingGroup:
    """Requests.

    The options of requests: names, limits, and the log.
    """

    model_name: list[str] | None = setting("NAME", "A name of the model; the first is in answers. Repeatable.")
    strict_model: bool = switch("Refuse requests that name another model.")
    allow_priority: bool = switch("Let requests say that they go first.")
    max_requests: int = setting("N", "Requests that may wait or be worked on at once.", 256)
    max_rows: int = setting("N", "Rows of the model that one request may plan.", 200_000)
    max_questions: int = setting("N", "Questions of one request.", 400)
    max_options: int = setting("N", "Options of one question.", 1_000)
    max_criteria: int = setting("N", "Options of a choice in TypeSafe's form.", 255)
    max_criteria_levels: int = setting("N", "Levels of a score in TypeSafe's form.", 10)
    max_options_in_all: int = setting("N", "Options of all questions of a request.", 20_000)
    max_n: int = setting("N", "Choices after one prompt, and best_of.", 128)
    max_prompts: int = setting("N", "Prompts of one request.", 1_024)
    max_stops: int = setting("N", "Stop texts of one request.", 64)
    max_logprobs: int = setting("N", "Most probable tokens at each position.", 20)
    default_max_tokens: int = setting("N", "Tokens of a chat's answer where the request does not say.", 1_024)
    max_body_mib: float = setting("MIB", "Size of a body, decoded.", 8.0)
    max_depth: int = setting("N", "Nesting of a body, at most 128.", 64)
    deadline_s: float = setting("S", "Seconds for a request.", 600.0, flags="--deadline")
    header_timeout_s: float = setting("S", "Seconds in which headers must arrive.", 20.0, flags="--header-timeout")
    body_timeout_s: float = setting("S", "Seconds in which a body must arrive.", 30.0, flags="--body-timeout")
    shutdown_timeout: float = setting("S", "Seconds in which accepted work may finish.", 30.0)
    generation_config: str = setting(
        "model|none",
        "Sampling options that a request leaves out: those stored with the model, or none (temperature 1).",
        default="model",
    )
    confidence: str = setting("top|entropy|label_mass", "How the confidence of choices and scores is computed.", "top")
    min_label_mass: float = setting(
        "P", "Decisions abstain below this label mass, unless a request says otherwise.", 0.0
    )
    calibration: str | None = setting(
        "FILE", "A calibration for the questions of decisions that it holds for.", mark=STDIN_JSON
    )
    log_prompts: bool = switch("Write the text of requests to the log.")
    no_page: bool = switch("Have no page for browsers at /.")


def serve(
    config: ConfigGroup, model: ModelGroup, several: ModelsGroup, address: AddressGroup, serving: ServingGroup
) -> int:
    r"""Answer over HTTP.

    OpenAI's /v1/decisions and TypeSafe's /v1/systemone by the options' own texts,
    completions and chats (extra server). SIGTERM finishes accepted work; a second
    signal ends at once.

    \b
    selectrie serve
    selectrie serve -m model.gguf --api-key-file keys.txt --host 0.0.0.0 --port 9000
    selectrie serve small=a.gguf big=b.gguf --memory 8G
    selectrie serve --config serve.toml
    """
    del config  # its values are in the other groups
    try:
        from selectrie.decide.calibration import Calibration
        from selectrie.server import serve as serving_room
        from selectrie.server.options import ServerOptions
    except ImportError as error:
        raise MissingExtraError("the server", "server") from error
    load = _loader(model, several, serving)
    number("max_body_mib", serving.max_body_mib, min_value=1e-6, remedy="a number of MiB above 0")
    same = {one.name for one in fields(ServerOptions)} & {one.name for one in fields(serving)} - {"calibration"}
    options = ServerOptions(
        model_names=tuple(serving.model_name or ()),
        aliases=_read_names("alias", several.alias or ()),
        cascades=_read_cascades(several),
        cascade_confidence=requests.least_confidence(several.cascade_confidence),
        key_digests=serving_room.key_digests(address.api_key_file) if address.api_key_file else (),
        hosts=serving_room.allowed_hosts(address.host, address.allowed_host or ()),
        origins=tuple(address.cors_origin or ()),
        max_body_bytes=max(1, round(serving.max_body_mib * (1 << 20))),
        page=not serving.no_page,
        calibration=None if serving.calibration is None else Calibration.load(serving.calibration),
        **{name: getattr(serving, name) for name in same},
    )
    serving_room.check_exposed(address.host, options, without_keys=address.no_auth)
    where = serving_room.Serving(
        address.host, address.port, serving.shutdown_timeout, serving.header_timeout_s, address.api_key_file
    )
    _log_to_stderr()
    return serving_room.serve(load, where, options, on_ready=_report_ready)


def _loader(model: ModelGroup, several: ModelsGroup, serving: ServingGroup) -> Callable[[], Engine | ModelPool]:
    """Return a function that loads the model, or makes a pool of several.

    Args:
        model: The options of one model, and of all that have no others.
        several: The models of a pool.
        serving: The options that have names of one model.

    Raises:
        OptionError: If two models have one name, or the memory is no size.
        IncompatibleOptionsError: For options of one model beside several, or of
            several beside one.
    """
    from selectrie.server.transport.models import check_names, name_of

    if not several.models:
        if several.memory is not None:
            raise IncompatibleOptionsError("memory", "one model", "give models as arguments: NAME=MODEL")
        if several.alias:
            raise IncompatibleOptionsError("alias", "one model", words("give its names with `model_name`"))
        if several.cascade:
            raise IncompatibleOptionsError("cascade", "one model", "give models as arguments: NAME=MODEL")
        return partial(requests.open_engine, model)
    if model.model is not None and model.model != requests.default_model(ModelGroup).model:
        raise IncompatibleOptionsError("model", "several models", "give all models as arguments: NAME=MODEL")
    if serving.model_name:
        raise IncompatibleOptionsError("model_name", "several models", "give each its name: NAME=MODEL")
    tables = several.models if isinstance(several.models, Mapping) else _named_models(several.models, name_of)
    cascades = _read_cascades(several)
    check_names(_read_names("alias", several.alias or ()), cascades, tables)
    groups = {name: replace(model, **{"model": None, **table}) for name, table in tables.items()}
    budget = None if several.memory is None else _parse_size("memory", several.memory)
    return partial(requests.open_pool, groups, budget, cascades)


def _named_models(models: Sequence[str], name_of: Callable[[str], str]) -> dict[str, dict[str, str]]:
    """Return the tables of models that are written `NAME=MODEL` or `MODEL`.

    The name of `MODEL` alone is that of its file, as `name_of` says.
    """
    tables: dict[str, dict[str, str]] = {}
    for text in models:
        found = _NAMED.match(text)
        source = text if found is None else text[found.end() :]
        name = name_of(source) if found is None else found[1]
        if name in tables:
            raise OptionError("models", text, f"a name for each model; {name!r} is given twice: NAME={source}")
        tables[name] = {"model": source}
    return tables


def _read_names(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what names stand for that are written `NAME=VALUE`."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or name in named:
            allowed = {"alias": "ALIAS=NAME, with the name of a model", "cascade": "NAME=A,B,…, with names of models"}
            raise OptionError(option, text, f"{allowed[option]}, and each {option} once")
        named[name] = value
    return named


def _read_cascades(several: ModelsGroup) -> dict[str, list[str]]:
    """Return the names of the models of each cascade, by its name."""
    if not several.cascade and several.cascade_confidence != ModelsGroup().cascade_confidence:
        raise OptionError("cascade", None, "NAME=A,B,…, the models of --cascade-confidence")
    named = _read_names("cascade", several.cascade or ())
    return {name: [one.strip() for one in members.split(",")] for name, members in named.items()}


def _parse_size(option: str, text: str) -> int:
    """Return the bytes of a size such as 8G, 1.5G or 500M, in powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    n_bytes = 0 if found is None else int(float(found["number"]) * 1024 ** " KMGT".index(found["unit"].upper()))
    if n_bytes < 1:
        raise OptionError(option, text, "a size with its unit, such as 500M or 8G, in powers of 1024")
    return n_bytes


def _report_ready(url: str, app: App) -> None:
    """Write the server's URL, its model and memory, and an example request."""
    models = app.state.models
    body = {
        "model": models.names[0],
        "input": "My parcel has not come.",
        "questions": [{"type": "predicate", "instructions": "The customer is angry."}],
    }
    key = " -H 'Authorization: Bearer KEY'" if app.state.options.key_digests else ""
    own = models.engine
    served = f"models {', '.join(models.names)}"
    if own is not None:
        limits = f"precision {own.identity.precision}, {own.limits.nodes} tokens for all requests (--n-ctx)"
        served = f"model {models.names[0]}, {limits}"
    page = "open it in a browser; " if app.state.options.page else ""
    write(f"{url}: {served}; {page}stop with Ctrl-C", sys.stdout)
    data = shlex.quote(json.dumps(body))
    write(f"curl {url}/v1/decisions -H 'Content-Type: application/json'{key} -d {data}", sys.stdout)
    sys.stdout.flush()


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON, from `record.line` or its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        time = datetime.fromtimestamp(record.created, tz=timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower()}
        line |= getattr(record, "line", None) or {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log_to_stderr() -> None:
    """Log each request and each failure of the server to stderr, as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name, level in (("selectrie.server", logging.INFO), ("uvicorn", logging.ERROR), ("asyncio", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
