"""The dialect of guidance 0.0.x.

It has tags `{{…}}`, helpers for comparisons, and guidance's names for arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selectrie.template.syntax.dialects import NO_CALLS, SELECTRIE, Dialect

_LISTS = "collect values with geneach"

HANDLEBARS = Dialect(
    "handlebars",
    "{{",
    "}}",
    partials=True,
    lenient=True,
    helpers=MappingProxyType(
        {
            "equal": "==",
            "notequal": "!=",
            "greater": ">",
            "less": "<",
            "contains": "in",
            "and": "and",
            "or": "or",
            "==": "==",
            "!=": "!=",
            ">": ">",
            ">=": ">=",
            "<": "<",
            "<=": "<=",
        }
    ),
    aliases=MappingProxyType(
        {"pattern": "regex", "num_iterations": "num", "min_iterations": "min", "max_iterations": "max"}
    ),
    commands=MappingProxyType(
        {
            "await": "a page is rendered in one pass; split the template in two, or pass the value",
            "parse": "include a template file instead",
            "break": "set num=, or stop= with min= and max=, on the geneach",
            "shell": NO_CALLS,
        }
    ),
    arguments=MappingProxyType(
        {
            "list_append": _LISTS,
            "save_prompt": "the page contains the text before each slot",
            "save_stop_text": "the stop text is not part of the value; write it after the slot",
            "stop_regex": "use regex= to describe the whole text",
            "token_healing": "slots are always healed",
            "logprobs": "the record of the slot has them",
            "stream": "pages stream with llm.stream_render",
            "cache_seed": "use seed=",
            "filter": NO_CALLS,
            "parse": NO_CALLS,
            "parallel": "slots are decided one after the other",
            "unique": "use a grammar, or check the page afterwards",
            "function_call": NO_CALLS,
            "single_call": "items are generated one by one; leave it out",
        }
    ),
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in (SELECTRIE, HANDLEBARS)})
