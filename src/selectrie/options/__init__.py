"""Options of a request, as frozen records.

Every record replaces a dozen keyword arguments. It checks each field's type and value
when it is made and raises `OptionError`: booleans are not numbers, NaN is not a
probability, and a single text is not a list of texts. Records compare by value and can
be hashed, copied and pickled.
"""

from __future__ import annotations

from selectrie.options.checks import (
    MAX_TEXTS,
    at_least,
    flag,
    named,
    natural,
    number,
    one_of,
    record,
    seed,
    text,
    texts,
    token_ids,
)
from selectrie.options.sampling import (
    BEAM_TERMINATORS,
    DEFAULT_BEAM,
    DEFAULT_SAMPLING,
    DEFAULT_STOPPING,
    BeamSearchParams,
    SamplingParams,
    StopParams,
)
from selectrie.options.selection import (
    BASELINE_RULES,
    DEFAULT_PROMPTING,
    DEFAULT_RENDERING,
    DEFAULT_SEARCH,
    GRAMMAR_NODES,
    MAX_SEGMENTS,
    MAX_SPELLING_ROWS,
    RULES,
    SPELLING_EVENTS,
    SPELLING_ROWS,
    TERMINATORS,
    TOKENIZATIONS,
    PromptParams,
    RenderParams,
    ScoringRule,
    SearchParams,
    SpellingParams,
)

__all__ = [
    "BASELINE_RULES",
    "BEAM_TERMINATORS",
    "DEFAULT_BEAM",
    "DEFAULT_PROMPTING",
    "DEFAULT_RENDERING",
    "DEFAULT_SAMPLING",
    "DEFAULT_SEARCH",
    "DEFAULT_STOPPING",
    "GRAMMAR_NODES",
    "MAX_SEGMENTS",
    "MAX_SPELLING_ROWS",
    "MAX_TEXTS",
    "RULES",
    "SPELLING_EVENTS",
    "SPELLING_ROWS",
    "TERMINATORS",
    "TOKENIZATIONS",
    "BeamSearchParams",
    "PromptParams",
    "RenderParams",
    "SamplingParams",
    "ScoringRule",
    "SearchParams",
    "SpellingParams",
    "StopParams",
    "at_least",
    "flag",
    "named",
    "natural",
    "number",
    "one_of",
    "record",
    "seed",
    "text",
    "texts",
    "token_ids",
]
