"""Define the dialect of guidance 0.0.x.

It has `{{…}}`, helpers for comparisons, and guidance's names for arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selectrie.template.syntax.dialects import SELECTRIE, Dialect

_NO_CALLS = "a template calls no functions; give the value under a name"
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
            "await": "a page is rendered in one go; make two templates of it, or give the value",
            "parse": "include the file of a template instead",
            "break": "say num=, or stop= with min= and max=, where the geneach begins",
            "shell": _NO_CALLS,
        }
    ),
    arguments=MappingProxyType(
        {
            "list_append": _LISTS,
            "save_prompt": "the page itself has the text that a slot follows",
            "save_stop_text": "the stop text is no part of a value; write it behind the slot",
            "stop_regex": "write regex= for what the text may be",
            "token_healing": "slots are always healed",
            "logprobs": "the record of the slot has them",
            "stream": "pages stream with llm.stream_render",
            "cache_seed": "write seed=",
            "filter": _NO_CALLS,
            "parse": _NO_CALLS,
            "parallel": "slots are decided one after the other",
            "unique": "give a grammar, or check the page",
            "function_call": _NO_CALLS,
            "single_call": "items are generated one by one; leave it out",
        }
    ),
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in (SELECTRIE, HANDLEBARS)})
