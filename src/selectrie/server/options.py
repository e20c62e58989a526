"""The options of the server, including all limits of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from selectrie.decide.calibration import Calibration
from selectrie.decide.params import LEAST_CONFIDENCE, SHARE
from selectrie.decide.threshold import Threshold
from selectrie.errors import OptionError
from selectrie.options.checks import at_least, flag, number, one_of

GENERATION_CONFIGS = ("model", "none")
CONFIDENCES = ("top", "entropy", "label_mass")
MAX_DEPTH = 128
"""Largest limit of nesting: what reads a body needs stack for each level."""
_HOST = re.compile(r"[^\sA-Z/:]+|\[[^\sA-Z/\]]+\]")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\sA-Z/?#]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of `app`. Requests beyond a limit are refused before any model call.

    Attributes:
        model_names: Names of the model; answers have the first. () for the name of its
            file. The models of a pool have the pool's names.
        aliases: Further names of models, each with the name of its model.
        cascades: Names of cascades of a pool's models, each with theirs in the order in
            which they are asked. A cascade answers decisions alone.
        cascade_confidence: Confidence below which an answer goes to the next model.
        strict_model: Whether an unknown `model` is an error although there is only one.
        key_digests: SHA-256 digests of the API keys; () for a server without keys.
        hosts: Values of the header `Host` that are answered, without ports; () for any.
        origins: Origins of web pages that may read answers (CORS); () for none.
        allow_priority: Whether requests may have a `priority`.
        max_requests: Number of requests that may wait or be worked on at once.
        max_body_bytes: Maximum size of a body, after decoding, in bytes.
        max_depth: Maximum nesting of a body, at most 128.
        body_timeout_s: Seconds in which a body must arrive.
        deadline_s: Seconds in which a request must be answered, streams included.
        ping_interval_s: Seconds without an event after which a stream sends a comment.
        max_questions: Maximum number of questions of a request.
        max_options: Maximum number of options of a question.
        max_criteria: Maximum number of options of a choice in TypeSafe's form, which
            has `criteria`.
        max_criteria_levels: Maximum number of levels of a score in that form.
        max_options_in_all: Maximum number of options of all questions of a request.
        max_rows: Maximum number of rows of the model that a request may plan, with
            nothing cached.
        max_n: Maximum number of choices after a prompt, and of `best_of`.
        max_prompts: Maximum number of prompts of a request.
        max_stops: Maximum number of stop texts, and of stop tokens.
        max_logprobs: Maximum number of most probable tokens at each position.
        default_max_tokens: Number of tokens that a chat may draw if the request does
            not say; fewer where the context has no room for them.
        generation_config: Where the sampling options come from that a request leaves
            out: "model" for those stored with the model (`Engine.stored_sampling`),
            "none" for the model's own distribution.
        confidence: How the confidence of choices and scores is computed from k
            probabilities: "top" is (max p - 1/k) / (1 - 1/k), as `Engine.decide` has
            it; "entropy" is 1 - H / ln k; "label_mass" is max p times the label mass.
        min_label_mass: Label mass below which a decision abstains if its request has no
            `min_label_mass`.
        calibration: The calibration of decisions whose request has none. Questions that
            it does not hold for are asked plainly.
        log_prompts: Whether the log has the text of requests.
        page: Whether `/` is a page on which a browser asks this server.
    """

    model_names: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    cascades: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cascade_confidence: float | Threshold = 0.8
    strict_model: bool = False
    key_digests: Sequence[bytes] = ()
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    allow_priority: bool = False
    max_requests: int = 256
    max_body_bytes: int = 8 << 20
    max_depth: int = 64
    body_timeout_s: float = 30.0
    deadline_s: float = 600.0
    ping_interval_s: float = 15.0
    max_questions: int = 400
    max_options: int = 1_000
    max_criteria: int = 255
    max_criteria_levels: int = 10
    max_options_in_all: int = 20_000
    max_rows: int = 200_000
    max_n: int = 128
    max_prompts: int = 1_024
    max_stops: int = 64
    max_logprobs: int = 20
    default_max_tokens: int = 1_024
    generation_config: str = "model"
    confidence: str = "top"
    min_label_mass: float = 0.0
    calibration: Calibration | None = None
    log_prompts: bool = False
    page: bool = True

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type == "int":
                at_least(one.name, value, 1, optional=False)
            elif one.type == "bool":
                flag(one.name, value)
            elif one.name.endswith("_s"):
                number(one.name, value, min_value=0.001, remedy="a number of seconds above 0")
        at_least("max_depth", self.max_depth, 1, max_value=MAX_DEPTH)
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise OptionError("hosts", host, "a host without scheme and port, such as app.example.org")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise OptionError("origins", origin, "an origin as browsers send it, such as https://app.example.org")
        one_of("generation_config", self.generation_config, GENERATION_CONFIGS)
        one_of("confidence", self.confidence, CONFIDENCES)
        SHARE.check("min_label_mass", self.min_label_mass)
        LEAST_CONFIDENCE.check("cascade_confidence", self.cascade_confidence)
        if any(len(digest) != 32 for digest in self.key_digests):
            raise OptionError("key_digests", "…", "SHA-256 digests of 32 bytes")
